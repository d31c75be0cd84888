-- Times are microseconds since 1970, ids and JSON are text: the same columns as in PostgreSQL. Strict, so that text
-- never lands in a column of numbers.

create table schedules (
    id             text primary key,
    agent          text not null,
    name           text not null,
    trigger_config text not null,
    state          text not null check (state in ('active', 'disabled', 'error')),
    state_why      text,
    run_at         integer,
    generation     integer not null,
    armed_at       integer not null,
    interval_count integer not null,
    last_due       integer,
    last_run_at    integer,
    last_error     text,
    waiting_due    integer,
    waiting_reason text,
    unique (agent, name)
) strict;

create table jobs (
    -- The order in which they were made: many are made in one instant.
    number             integer primary key autoincrement,
    id                 text not null unique,
    agent              text not null,
    schedule           text,
    schedule_id        text references schedules (id),
    by_trigger           integer not null,
    trigger_type       text not null,
    status             text not null,
    exit_reason        text,
    session_id         text,
    forked_from        text,
    retry_of           text,
    started_at         integer not null,
    finished_at        integer,
    prompt             text,
    summary            text,
    attempt            integer not null,
    run_started_at     integer,
    attempt_started_at integer,
    not_before         integer,
    error_kind         text,
    error_message      text,
    termination        text,
    usage              text,
    cancel_asked_at    integer,
    epoch              integer not null default 0
) strict;
create index jobs_live on jobs (number) where status in ('pending', 'running');
create index jobs_of_agent on jobs (agent, number);

-- Inserting the key is the lock: one firing for each occurrence, whoever asks and however often.
create table firings (
    schedule_id text not null references schedules (id),
    key         text not null,
    due_at      integer not null,
    decided_at  integer not null,
    outcome     text not null check (outcome in ('ran', 'skipped', 'missed', 'coalesced')),
    reason      text,
    job_id      text,
    primary key (schedule_id, key)
) strict;
create index firings_ledger on firings (schedule_id, due_at desc);

create table attempts (
    job_id        text not null references jobs (id),
    number        integer not null,
    node          text not null,
    started_at    integer not null,
    ended_at      integer,
    outcome       text,
    primary key (job_id, number)
) strict;

-- Renewed often, so not on the job's row.
create table leases (
    job_id     text primary key references jobs (id),
    attempt    integer not null,
    node       text not null,
    epoch      integer not null,
    expires_at integer not null
) strict;
create index leases_of_node on leases (node);

create table events (
    seq      integer primary key,
    at       integer not null,
    type     text not null,
    agent    text not null,
    schedule text,
    job_id   text,
    data     text not null
) strict;

-- PostgreSQL needs this row to number events in the order of their commits; here it keeps the texts the same.
create table counters (
    name  text primary key,
    value integer not null
) strict;
insert into counters (name, value) values ('event', 0);

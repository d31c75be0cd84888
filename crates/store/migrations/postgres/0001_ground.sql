-- Times are microseconds since 1970, ids and JSON are text: the same columns as in SQLite.

create table schedules (
    id             text primary key,
    agent          text not null,
    name           text not null,
    trigger_config text not null,
    state          text not null check (state in ('active', 'disabled', 'error')),
    state_why      text,
    run_at         bigint,
    generation     bigint not null,
    armed_at       bigint not null,
    interval_count bigint not null,
    last_due       bigint,
    last_run_at    bigint,
    last_error     text,
    waiting_due    bigint,
    waiting_reason text,
    unique (agent, name)
);

create table jobs (
    -- The order in which they were made: many are made in one instant.
    number             bigint generated always as identity primary key,
    id                 text not null unique,
    agent              text not null,
    schedule           text,
    schedule_id        text references schedules (id),
    by_trigger           bigint not null,
    trigger_type       text not null,
    status             text not null,
    exit_reason        text,
    session_id         text,
    forked_from        text,
    retry_of           text,
    started_at         bigint not null,
    finished_at        bigint,
    prompt             text,
    summary            text,
    attempt            bigint not null,
    run_started_at     bigint,
    attempt_started_at bigint,
    not_before         bigint,
    error_kind         text,
    error_message      text,
    termination        text,
    usage              text,
    cancel_asked_at    bigint,
    epoch              bigint not null default 0
);
create index jobs_live on jobs (number) where status in ('pending', 'running');
create index jobs_of_agent on jobs (agent, number);

-- Inserting the key is the lock: one firing for each occurrence, whoever asks and however often.
create table firings (
    schedule_id text not null references schedules (id),
    key         text not null,
    due_at      bigint not null,
    decided_at  bigint not null,
    outcome     text not null check (outcome in ('ran', 'skipped', 'missed', 'coalesced')),
    reason      text,
    job_id      text,
    primary key (schedule_id, key)
);
create index firings_ledger on firings (schedule_id, due_at desc);

create table attempts (
    job_id        text not null references jobs (id),
    number        bigint not null,
    node          text not null,
    started_at    bigint not null,
    ended_at      bigint,
    outcome       text,
    primary key (job_id, number)
);

-- Renewed often, so not on the job's row.
create table leases (
    job_id     text primary key references jobs (id),
    attempt    bigint not null,
    node       text not null,
    epoch      bigint not null,
    expires_at bigint not null
);
create index leases_of_node on leases (node);

create table events (
    seq      bigint primary key,
    at       bigint not null,
    type     text not null,
    agent    text not null,
    schedule text,
    job_id   text,
    data     text not null
);

-- A sequence of the database hands out numbers before their transactions commit, so a reader could step over
-- one; this row is locked until the commit, so numbers appear in order and without gaps.
create table counters (
    name  text primary key,
    value bigint not null
);
insert into counters (name, value) values ('event', 0);

-- The hooks of each agent, so that whoever ends a job knows in the same transaction what is to be done after it. What a
-- hook does stays in the config, since it may hold secrets.
create table hooks (
    agent  text not null,
    number integer not null,
    list   text not null check (list in ('after_run', 'on_error')),
    kind   text not null,
    name   text,
    -- Words with spaces between them; none means all.
    events text not null,
    primary key (agent, number)
) strict;

-- One for each hook that applies to a job that has ended, in the order in which they run.
create table hook_runs (
    job_id     text not null,
    number     integer not null,
    agent      text not null,
    schedule   text,
    list       text not null check (list in ('after_run', 'on_error')),
    kind       text not null,
    name       text,
    event      text not null check (event in ('completed', 'failed', 'timeout', 'cancelled')),
    state      text not null check (state in ('waiting', 'running', 'completed', 'failed', 'skipped')),
    -- Who has it in hand, or had the job.
    node       text,
    -- Nobody takes it before this: it is to be tried again then, or somebody has it until then.
    not_before integer not null,
    tries      integer not null default 0,
    started_at integer,
    ended_at   integer,
    reason     text,
    said       text,
    primary key (job_id, number)
) strict;
create index hook_runs_owed on hook_runs (not_before) where state in ('waiting', 'running');

-- What agents left for their hooks when their jobs ended.
create table hook_metadata (
    job_id   text primary key,
    metadata text not null
) strict;

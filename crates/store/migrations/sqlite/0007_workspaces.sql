-- Where jobs work that have a directory of their own, on which machine, and what git has to forget with it. `making`
-- may be half there; `used` has a job; `kept` stays after its end; of `branch` only the branch is left, for commits that are nowhere else.
create table workspaces (
    node       text not null,
    path       text not null,
    job_id     text not null,
    agent      text not null,
    kind       text not null,
    repository text not null,
    branch     text not null,
    base       text not null,
    state      text not null check (state in ('making', 'used', 'kept', 'branch')),
    keep_until integer,
    since      integer not null,
    primary key (node, path)
) strict;
create index workspaces_of_job on workspaces (job_id);

-- Jobs of an agent that have the same key share one session, one after the other.
alter table jobs add column session_key text;
create index jobs_of_session on jobs (agent, session_key, number) where session_key is not null;

-- A session belongs to the directory, the machine and the runtime that it began with.
alter table attempts add column directory text;
alter table attempts add column runtime text;

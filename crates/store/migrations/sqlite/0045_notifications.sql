-- States of the fleet that people are told about.
create table incidents (
    -- Number of the event that opened the incident.
    opened_by integer primary key,
    kind      text not null,
    subject   text not null,
    -- The incident as JSON, with the targets that are told about it.
    content   text not null,
    -- Time at which the incident changes without an event: a reminder, or its end.
    next_at   integer,
    ended_at  integer,
    ended_as  text
) strict;
create unique index incidents_open on incidents (kind, subject) where ended_at is null;
create index incidents_ended on incidents (ended_at) where ended_at is not null;

-- Messages to targets. The targets and their secrets are in the config.
create table notifications (
    number     integer primary key,
    target     text not null,
    kind       text not null,
    incident   integer,
    state      text not null,
    -- The message as JSON.
    message    text not null,
    created_at integer not null,
    -- Nobody takes it before this time: it is held back, it is tried again then, or a node has it until then.
    not_before integer not null,
    -- 1 while quiet hours hold it back.
    held       integer not null,
    tries      integer not null default 0,
    -- Time of the first try; a post that was tried is looked up before it is made again.
    tried_at   integer,
    node       text,
    last_error text,
    ended_at   integer,
    -- Digest that contains it.
    part_of    integer
) strict;
create index notifications_due on notifications (not_before) where state in ('waiting', 'sending');
create index notifications_open on notifications (incident, target, number) where state in ('waiting', 'sending');
create index notifications_failed on notifications (number) where state = 'failed';
create index notifications_sent on notifications (target, number) where state = 'sent';
create index notifications_ended on notifications (ended_at) where ended_at is not null;
insert into counters (name, value) values ('notification', 0);

-- How far each budget is spent in its current period: 80 or 100 percent. Budgets below 80 percent have no row.
create table budget_levels (
    -- Agent of the budget; empty for the budget of the fleet.
    agent        text not null,
    period       text not null,
    unit         text not null,
    percent      integer not null,
    -- Start of the next period.
    until        integer not null,
    primary key (agent, period, unit)
) strict;

-- Time at which the daemon of the node was stopped; null while it runs, and after it ended without being stopped.
alter table nodes add column stopped_at integer;
-- Time at which another node noticed that the daemon had ended without being stopped; null if it has returned.
alter table nodes add column lost_at integer;
-- Time since which the disk of the node's state folder has little free space.
alter table nodes add column disk_low_at integer;
-- Earlier versions did not record whether a daemon was stopped.
update nodes set stopped_at = seen_at;

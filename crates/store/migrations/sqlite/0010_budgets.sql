-- What was spent is kept by the quarter of an hour in which attempts end (its begin, in microseconds), so that days and
-- months can be told in any time zone: all of them begin at such a quarter. What was written by day was a day of UTC.
create table usage_by_slot (
    slot                  integer not null,
    agent                 text not null,
    schedule              text not null,
    model                 text not null,
    attempts              integer not null,
    input_tokens          integer not null,
    output_tokens         integer not null,
    cache_creation_tokens integer not null,
    cache_read_tokens     integer not null,
    cost_microdollars     integer not null,
    primary key (slot, agent, schedule, model)
) strict;
insert into usage_by_slot
    select cast(strftime('%s', day) as integer) * 1000000, agent, schedule, model, attempts, input_tokens, output_tokens,
        cache_creation_tokens, cache_read_tokens, cost_microdollars from usage;
drop table usage;
alter table usage_by_slot rename to usage;

-- What a work item has cost in all, whoever worked on it.
create table usage_of_items (
    item                  text primary key,
    title                 text not null,
    attempts              integer not null,
    input_tokens          integer not null,
    output_tokens         integer not null,
    cache_creation_tokens integer not null,
    cache_read_tokens     integer not null,
    cost_microdollars     integer not null,
    last_at               integer not null
) strict;
create index usage_of_items_by_time on usage_of_items (last_at);

-- What an attempt has reserved, and what it is known to have spent: while it runs so far, then in all.
alter table attempts add column reserved_microdollars integer not null default 0;
alter table attempts add column reserved_tokens integer not null default 0;
alter table attempts add column usage text;
alter table attempts add column microdollars integer;
alter table attempts add column tokens integer;
create index attempts_by_end on attempts (ended_at);

-- What a schedule's last jobs came to, and until when it pauses because of that.
alter table schedules add column fuse text;
alter table schedules add column paused_until integer;

-- What was spent is kept by the quarter of an hour in which attempts end (its begin, in microseconds), so that days and
-- months can be told in any time zone: all of them begin at such a quarter. What was written by day was a day of UTC.
create table usage_by_slot (
    slot                  bigint not null,
    agent                 text not null,
    schedule              text not null,
    model                 text not null,
    attempts              bigint not null,
    input_tokens          bigint not null,
    output_tokens         bigint not null,
    cache_creation_tokens bigint not null,
    cache_read_tokens     bigint not null,
    cost_microdollars     bigint not null,
    primary key (slot, agent, schedule, model)
);
insert into usage_by_slot
    select cast(extract(epoch from cast(day as date)) as bigint) * 1000000, agent, schedule, model, attempts, input_tokens, output_tokens,
        cache_creation_tokens, cache_read_tokens, cost_microdollars from usage;
drop table usage;
alter table usage_by_slot rename to usage;

-- What a work item has cost in all, whoever worked on it.
create table usage_of_items (
    item                  text primary key,
    title                 text not null,
    attempts              bigint not null,
    input_tokens          bigint not null,
    output_tokens         bigint not null,
    cache_creation_tokens bigint not null,
    cache_read_tokens     bigint not null,
    cost_microdollars     bigint not null,
    last_at               bigint not null
);
create index usage_of_items_by_time on usage_of_items (last_at);

-- What an attempt has reserved, and what it is known to have spent: while it runs so far, then in all.
alter table attempts add column reserved_microdollars bigint not null default 0;
alter table attempts add column reserved_tokens bigint not null default 0;
alter table attempts add column usage text;
alter table attempts add column microdollars bigint;
alter table attempts add column tokens bigint;
create index attempts_by_end on attempts (ended_at);

-- What a schedule's last jobs came to, and until when it pauses because of that.
alter table schedules add column fuse text;
alter table schedules add column paused_until bigint;

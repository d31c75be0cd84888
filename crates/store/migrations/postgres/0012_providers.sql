-- What agents share: when one of them was started last, and until when the provider is used up.
create table providers (
    name          text primary key,
    last_start_at bigint,
    parked_since  bigint,
    parked_until  bigint,
    message       text,
    times         bigint not null default 0
);

-- How often the job met a limit and waited for its end, and where it runs or ran last.
alter table jobs add column provider text;
alter table jobs add column parks bigint not null default 0;

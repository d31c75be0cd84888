-- What agents share: when one of them was started last, and until when the provider is used up.
create table providers (
    name          text primary key,
    last_start_at integer,
    parked_since  integer,
    parked_until  integer,
    message       text,
    times         integer not null default 0
) strict;

-- How often the job met a limit and waited for its end, and where it runs or ran last.
alter table jobs add column provider text;
alter table jobs add column parks integer not null default 0;

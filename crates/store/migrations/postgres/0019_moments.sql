-- What counts by duration has the boot clock beside the wall clock, as `BOOT-ID:MICROSECONDS`: within one boot it decides,
-- whatever happens to the wall clock.

-- What an interval counts from, the end of a pause, and whether `end_at` has passed (of one that is active).
alter table schedules add column counted_from bigint;
alter table schedules add column counted_boot text;
alter table schedules add column polled_boot text;
alter table schedules add column pause_boot text;
alter table schedules add column finished bigint not null default 0;
update schedules set counted_from = last_run_at;
-- After the clock was set back: due times up to here were decided before, as a rule.
alter table schedules add column replay_until bigint;

-- How the last run that failed did; `last_error` may tell of something else that keeps the schedule from firing.
alter table schedules add column run_error text;
update schedules set run_error = last_error;

-- When a retry began to wait for `not_before`.
alter table jobs add column backoff_from bigint;
alter table jobs add column backoff_boot text;

alter table attempts add column started_boot text;
alter table asks add column asked_boot text;

-- The end of a lease. PostgreSQL counts leases on its own clock.
alter table leases add column boot text;

-- Every daemon that has used this store: when it was started last, and the clocks as it last knew them.
create table nodes (
    name         text primary key,
    started_at   bigint not null,
    started_boot text,
    seen_at      bigint not null,
    seen_boot    text
);

-- Since when the config has the schedule disabled, or not at all.
alter table schedules add column absent_since bigint;

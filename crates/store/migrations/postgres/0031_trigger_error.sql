-- The failure of the schedule's trigger, as JSON: the error, and the time of the first error since its last answer.
alter table schedules add column trigger_error text;

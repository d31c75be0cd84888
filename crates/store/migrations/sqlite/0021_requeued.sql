-- Attempts of a job that were claimed and never began: why, how often in a row, and how many in all, as JSON.
alter table jobs add column requeued text;

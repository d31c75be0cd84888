-- Whether an attempt of the job used a tool, or may have: of those that were made before this, nobody knows.
alter table jobs add column acted integer not null default 0;
update jobs set acted = 1 where status in ('pending', 'running') and attempt > 0;

-- What is read of one job or one schedule is found by index, however many events there are. Most jobs have no entry in
-- these indexes.
create index events_of_cancellation on events (job_id) where type in ('job:cancelling', 'job:cancelled');
create index events_of_item on events (job_id)
    where type in ('work:reported', 'work:released', 'work:dropped', 'work:delayed');
create index events_of_adoption on events (agent, schedule) where type = 'schedule:adopted';
-- A removed job is searched by its id, or by the last six characters of its id.
create index events_of_removal on events (substr(job_id, 16)) where type in ('job:pruned', 'job:deleted');

create index asks_by_time on asks (asked_at desc, job_id, number desc);
create index sightings_present on sightings (schedule_id) where present = 1;

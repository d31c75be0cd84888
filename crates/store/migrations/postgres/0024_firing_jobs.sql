-- The firing that a job was made for; with a work source one firing makes several jobs.
alter table jobs add column firing_key text;
create index jobs_of_firing on jobs (schedule_id, firing_key) where firing_key is not null;

-- People name a job by the last six characters of its id.
create index jobs_by_suffix on jobs (substr(id, 16));

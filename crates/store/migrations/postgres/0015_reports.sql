-- What the agent itself said that its work came to, as JSON.
alter table attempts add column report text;

-- Why the job last did not get a follow-up that it asked for.
alter table jobs add column followup_refused text;
alter table jobs add column followup_refused_at bigint;
create index jobs_refused on jobs (agent, number) where followup_refused is not null;

-- The planner reads the running jobs of an agent, and its jobs that wait for a time or for another attempt, whatever the
-- number of its waiting jobs.
create index jobs_running_of_agent on jobs (agent, number) where status = 'running';
create index jobs_running_of_schedule on jobs (schedule_id, number) where status = 'running';
create index jobs_later_of_agent on jobs (agent, number)
    where status = 'pending' and (not_before is not null or run_started_at is not null);

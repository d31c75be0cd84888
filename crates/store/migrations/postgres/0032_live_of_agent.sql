-- The planner reads the live jobs and the claims of one agent, whatever the number of jobs of other agents.
create index jobs_live_of_agent on jobs (agent, number) where status in ('pending', 'running');
create index jobs_live_of_schedule on jobs (schedule_id, number) where status in ('pending', 'running');
create index items_claiming on items (agent) where state = 'claiming';

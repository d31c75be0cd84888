-- The time at which the agent was started. The folder of a settled attempt, which also has it, is removed.
alter table attempts add column agent_began_at bigint;

-- What the agent itself said that its work came to, as JSON.
alter table attempts add column report text;

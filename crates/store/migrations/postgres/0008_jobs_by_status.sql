-- What failed lately is found among a million that did not.
create index jobs_by_status on jobs (status, number);

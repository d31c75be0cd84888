-- Newest report about each usage window of a provider. The used part is in tenths of a percent.
create table provider_windows (
    provider    text not null,
    name        text not null,
    used        bigint not null,
    resets_at   bigint not null,
    reported_at bigint not null,
    primary key (provider, name)
);

-- 1 if no person requested the job, so that it waits while the reserve of its provider is reached. For ended jobs of
-- earlier versions it is 0, because they do not start again.
alter table jobs add column automatic bigint not null default 0;
update jobs set automatic = 1 where status in ('pending', 'running')
    and (trigger_type in ('schedule', 'webhook') or id in (select job_id from followups));

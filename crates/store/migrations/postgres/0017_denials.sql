-- What rules denied to agents: one row for each tool and rule of a job, however often it tried.
create table denials (
    job_id   text not null,
    tool     text not null,
    rule     text not null,
    times    bigint not null,
    first_at bigint not null,
    last_at  bigint not null,
    primary key (job_id, tool, rule)
);

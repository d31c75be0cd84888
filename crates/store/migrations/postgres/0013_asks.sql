-- What agents asked of people while they ran.
create table asks (
    job_id      text not null,
    number      bigint not null,
    attempt     bigint not null,
    -- The agent's own name for it: who asks again after a lost connection means the same.
    key         text not null,
    -- A tool with its input, or a question, as JSON.
    what        text not null,
    asked_at    bigint not null,
    expires_at  bigint not null,
    status      text not null check (status in ('open', 'allowed', 'denied', 'answered', 'expired', 'ended')),
    message     text,
    -- Who answered, as JSON.
    actor       text,
    answered_at bigint,
    primary key (job_id, number),
    unique (job_id, attempt, key)
);
create index asks_open on asks (expires_at) where status = 'open';

-- Jobs that other jobs asked for, and the chains that they make.
create table followups (
    job_id   text primary key,
    root_id  text not null,
    asked_by text not null,
    key      text not null,
    -- When the chain's first job was made.
    began_at bigint not null,
    unique (asked_by, key)
);
create index followups_of_chain on followups (root_id);

-- Messages that people and programs send to a job that has not ended.
create table job_messages (
    job_id     text not null,
    number     bigint not null,
    -- Id by which the agent's program confirms the message.
    uuid       text not null,
    -- Idempotency key of the request.
    key        text,
    text       text not null,
    bytes      bigint not null,
    interrupt  bigint not null check (interrupt in (0, 1)),
    route      text not null check (route in ('live', 'next_turn')),
    -- Sender, as JSON.
    actor      text,
    sent_at    bigint not null,
    state      text not null check (state in ('pending', 'delivered', 'next_turn', 'dropped')),
    settled_at bigint,
    -- Attempt that has the message.
    attempt    bigint,
    -- Job whose prompt has the message.
    next_job   text,
    primary key (job_id, number)
);
create unique index job_messages_by_key on job_messages (job_id, key) where key is not null;
create index job_messages_waiting on job_messages (job_id) where state = 'pending';
create index job_messages_by_next_job on job_messages (next_job) where next_job is not null;

-- Conversations of the web chat. The row of a conversation is locked while a message is added.
create table web_conversations (
    id          text primary key,
    agent       text not null,
    title       text not null,
    created_at  bigint not null,
    -- Time of the newest message.
    updated_at  bigint not null,
    -- Job whose session the conversation begins with; null for a new session.
    continues   text,
    -- Why the jobs of the conversation run in the strict sandbox; null if they do not.
    confined    text,
    -- Number of resets. It is part of the session key.
    resets      bigint not null default 0,
    -- Number of the newest message.
    last_number bigint not null default 0
);
create index web_conversations_by_time on web_conversations (updated_at, id);
create index web_conversations_of_agent on web_conversations (agent, updated_at, id);

-- Messages of people. A row is written together with the firing and the job of the message, and removed with the job.
create table web_messages (
    conversation text not null,
    number       bigint not null,
    -- Key that the client has made, so that a repeated request adds one message; null if the client made none.
    key          text,
    text         text not null,
    -- Who sent the message, as JSON; null if that is not known.
    sender       text,
    sent_at      bigint not null,
    -- Number of resets of the conversation before this message.
    resets       bigint not null,
    job_id       text not null,
    primary key (conversation, number)
);
create unique index web_messages_of_key on web_messages (conversation, key) where key is not null;
create unique index web_messages_of_job on web_messages (job_id);

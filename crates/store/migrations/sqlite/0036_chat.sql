-- Messages from chat platforms. A row is written before the platform gets a confirmation.
create table chat_messages (
    -- Bot that received the message: the platform and the id of the bot's account.
    bot         text not null,
    -- Id of the message on the platform.
    id          text not null,
    channel     text not null,
    sent_at     integer not null,
    received_at integer not null,
    -- The message as JSON; null once the message is handled.
    body        text,
    primary key (bot, id)
) strict;
create index chat_messages_open on chat_messages (bot, sent_at, id) where body is not null;
create index chat_messages_by_time on chat_messages (received_at);

-- Time of the newest message of each channel that a bot has received. After a downtime, later messages are read.
create table chat_channels (
    bot     text not null,
    channel text not null,
    -- The place as JSON.
    place   text not null,
    sent_at integer not null,
    primary key (bot, channel)
) strict;

-- Answers: one for each firing that a chat message caused. A row is written before the firing.
create table chat_answers (
    schedule_id  text not null,
    key          text not null,
    agent        text not null,
    platform     text not null,
    -- Place, message and author as JSON.
    origin       text not null,
    message      text not null,
    -- Id of the author on the platform.
    author       text not null,
    -- Conversation whose answers are posted one after the other.
    conversation text not null,
    created_at   integer not null,
    state        text not null check (state in ('open', 'done')),
    -- Progress of the posts as JSON.
    progress     text,
    -- Message that says that the sender has to wait.
    waiting_note text,
    -- Node that has posted last.
    node         text,
    ended_at     integer,
    primary key (schedule_id, key)
) strict;
create index chat_answers_open on chat_answers (agent, conversation, created_at, key) where state = 'open';
create index chat_answers_of_message on chat_answers (message);
create index chat_answers_of_author on chat_answers (author, created_at);
create index chat_answers_of_conversation on chat_answers (agent, conversation);
create index chat_answers_by_end on chat_answers (ended_at) where state = 'done';

-- Conversations whose session was reset. The number is part of the session key.
create table chat_conversations (
    agent    text not null,
    chat     text not null,
    resets   integer not null,
    reset_at integer not null,
    primary key (agent, chat)
) strict;

-- Asks that were posted in a chat, so that an answer elsewhere closes them.
create table chat_asks (
    job_id  text not null,
    number  integer not null,
    -- Agent, platform, place and messages as JSON.
    post    text not null,
    state   text not null check (state in ('open', 'closed')),
    primary key (job_id, number)
) strict;
create index chat_asks_open on chat_asks (job_id) where state = 'open';

-- The node that is connected for a bot, and the state of its connection.
create table chat_bots (
    bot        text primary key,
    node       text not null,
    until      integer not null,
    platform   text not null,
    -- Agents that use the bot, as JSON.
    agents     text not null,
    -- State of the connection as JSON.
    state      text not null,
    changed_at integer not null
) strict;

-- Time up to which a bot has received all messages of its channels. After a downtime, later messages are read.
create table chat_inboxes (
    -- The platform and the id of the bot's account.
    bot            text primary key,
    received_until bigint not null
);
create index chat_channels_by_time on chat_channels (bot, sent_at);

-- The messages of a channel and of its threads are handled one after the other.
drop index chat_messages_open;
create index chat_messages_open on chat_messages (bot, channel, sent_at, id) where body is not null;

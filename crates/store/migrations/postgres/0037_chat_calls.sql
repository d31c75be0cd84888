-- Commands of chats that act: what each acts on. It is decided once, so that a repeated command acts only once.
create table chat_calls (
    -- Platform, and the id of the slash command or of the message with the command.
    call      text primary key,
    target    text not null,
    called_at bigint not null
);
create index chat_calls_by_time on chat_calls (called_at);

-- Messages that count for the limits of their author although they may get no answer: voice messages whose transcription
-- was begun.
create table chat_counted (
    message  text not null,
    agent    text not null,
    author   text not null,
    counted_at integer not null,
    primary key (message, agent)
) strict;
create index chat_counted_of_author on chat_counted (author, counted_at);
create index chat_counted_by_time on chat_counted (counted_at);

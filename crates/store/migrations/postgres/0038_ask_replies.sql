-- Message that answers the ask. It is recorded before the answer, so that it is not taken for a new message after a crash.
alter table chat_asks add column reply text;
create index chat_asks_of_reply on chat_asks (reply) where reply is not null;

-- The chat message that caused the job, as JSON: its author, its place and its link.
alter table jobs add column message text;

-- Platform and account of the bot, under which its messages are stored; null before its first connection.
alter table chat_bots add column inbox text;

-- Channel that contains a thread; empty for a whole channel. Channels and threads are read separately after a downtime,
-- so that many threads do not take the places of channels.
alter table chat_channels add column parent text not null default '';
update chat_channels set parent = substr(channel, 1, strpos(channel, '/') - 1) where strpos(channel, '/') > 0;
drop index chat_channels_by_time;
create index chat_channels_by_time on chat_channels (bot, parent, sent_at);

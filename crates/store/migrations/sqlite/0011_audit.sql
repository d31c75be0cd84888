-- Who had it done, as JSON; null for what the fleet did by itself.
alter table events add column actor text;
create index events_asked on events (seq) where actor is not null;

-- Since when a result waits to be told to its work source, and the person who asked for it.
alter table items add column owed_since bigint;
alter table items add column owed_by text;

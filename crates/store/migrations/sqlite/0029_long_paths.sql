-- SQLite has no limit for the length of an index entry, so only the index of PostgreSQL changes.
select 1;

-- Dollars that count because nobody told what the attempt has cost.
alter table attempts add column assumed_microdollars integer not null default 0;

-- The length of each lease in microseconds, and what happens if it is not renewed.
alter table leases add column length integer not null default 30000000;
alter table leases add column on_lost text not null default 'pause';

-- Since when the node reaches the database without a gap, and when it did so last, by the clock of the database. An
-- expired lease is settled only after a node has reached the database for the length of the lease.
alter table nodes add column contact_since integer;
alter table nodes add column contact_at integer;

-- Whether the attempt was settled because its lease had expired; and what its node found out about it afterwards.
alter table attempts add column taken_over integer not null default 0;
alter table attempts add column superseded text;

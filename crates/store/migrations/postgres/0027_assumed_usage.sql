-- The assumed part of the dollars in the sums.
alter table usage add column assumed_microdollars bigint not null default 0;
alter table usage_of_items add column assumed_microdollars bigint not null default 0;

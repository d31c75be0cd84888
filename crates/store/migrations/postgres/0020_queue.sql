-- The place of a firing among those of its schedule that are being prepared: they are prepared in this order.
alter table firings add column prepare_number bigint not null default 0;

-- With a work source: when the schedule last looked for work because it was due, whether it looks again as soon as a
-- place is free, and how many times it has done that.
alter table schedules add column polled_at bigint;
alter table schedules add column fill bigint not null default 0;
alter table schedules add column fill_count bigint not null default 0;

-- What is known of an item whose job did not succeed, and where it stands: `offered` by its queue as far as we know,
-- `given_up` after we reported a failure, or `withdrawn` by a person. One that is offered after it was given up or
-- withdrawn was put back by a person.
alter table item_failures add column state text not null default 'offered' check (state in ('offered', 'given_up', 'withdrawn'));
alter table item_failures add column reason text;
alter table item_failures add column job_id text;
alter table item_failures add column failed_at bigint;
alter table item_failures add column released_at bigint;
alter table item_failures add column content text;
update item_failures set state = 'given_up' where failures >= 3;

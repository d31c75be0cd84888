-- A firing may need time before its jobs are made: the work source is asked, and items are claimed. Until then it keeps
-- what it is about, and somebody has it in hand.
alter table firings drop constraint firings_outcome_check;
alter table firings add constraint firings_outcome_check
    check (outcome in ('preparing', 'ran', 'skipped', 'missed', 'coalesced'));
alter table firings add column occasion text;
alter table firings add column preparer text;
alter table firings add column prepare_until bigint;
alter table firings add column prepare_tries bigint not null default 0;
create index firings_preparing on firings (schedule_id) where outcome = 'preparing';

alter table jobs add column work_item text;

-- The items of outside queues that we hold, or still owe a word to. The row is the lock: as long as it is there, nobody
-- who shares this store takes the item.
create table items (
    queue      text not null,
    item       text not null,
    -- The job, or the person who claimed by hand.
    holder     text not null unique,
    state      text not null check (state in ('claiming', 'held', 'closing')),
    -- Of the claim outside; a claim that is being made is given up after it.
    until      bigint not null,
    node       text not null,
    agent      text not null,
    schedule   text,
    -- The source's config, so that what is owed can be told whatever the config says by then.
    source     text not null,
    content    text not null,
    -- What is owed, how often it was tried, and when it is tried again.
    closing    text,
    tries      bigint not null default 0,
    not_before bigint,
    last_error text,
    primary key (queue, item)
);
create index items_owed on items (not_before) where state = 'closing';

-- How often in a row work on an item failed; success forgets it.
create table item_failures (
    queue    text not null,
    item     text not null,
    failures bigint not null,
    primary key (queue, item)
);

-- Who we are to other fleets, the same for everybody who shares this store.
create table identity (
    name  text primary key,
    value text not null
);

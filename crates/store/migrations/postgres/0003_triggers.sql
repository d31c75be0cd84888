-- How far a schedule that lives by events has come. It moves on with the firing that it leads to, so that a restart
-- neither loses an event nor tells of it twice.
create table cursors (
    schedule_id text primary key references schedules (id),
    seq         bigint not null
);

-- What a polled list showed last. An item that comes back after it was gone is a new one: its generation grows.
create table sightings (
    schedule_id text not null references schedules (id),
    item        text not null,
    generation  bigint not null,
    present     bigint not null,
    primary key (schedule_id, item)
);

-- From a job to what made it: how long a chain of schedules has become.
create index firings_of_job on firings (job_id) where job_id is not null;

-- Time since which the node takes no new jobs.
alter table nodes add column drained_at bigint;

-- What a node reports about itself, and when it was last seen. PostgreSQL counts `seen_at` on its own clock.
create table node_reports (
    name    text primary key,
    seen_at bigint not null,
    -- A report in JSON (`cowhand_core::node::NodeReport`).
    report  text not null,
    -- The limits of the node's config in JSON (`cowhand_core::node::NodeLimits`).
    limits  text not null
);

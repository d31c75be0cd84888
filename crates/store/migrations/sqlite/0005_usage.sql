-- What was spent, added up by day (UTC) as attempts end, so that it is known after their jobs are pruned. An attempt may
-- use several models: each has a row, and the one without a model has the attempts, and the money of no known model.
create table usage (
    day                   text not null,
    agent                 text not null,
    schedule              text not null,
    model                 text not null,
    attempts              integer not null,
    input_tokens          integer not null,
    output_tokens         integer not null,
    cache_creation_tokens integer not null,
    cache_read_tokens     integer not null,
    cost_microdollars     integer not null,
    primary key (day, agent, schedule, model)
) strict;

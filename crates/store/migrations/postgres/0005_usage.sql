-- What was spent, added up by day (UTC) as attempts end, so that it is known after their jobs are pruned. An attempt may
-- use several models: each has a row, and the one without a model has the attempts, and the money of no known model.
create table usage (
    day                   text not null,
    agent                 text not null,
    schedule              text not null,
    model                 text not null,
    attempts              bigint not null,
    input_tokens          bigint not null,
    output_tokens         bigint not null,
    cache_creation_tokens bigint not null,
    cache_read_tokens     bigint not null,
    cost_microdollars     bigint not null,
    primary key (day, agent, schedule, model)
);

-- The conversation that a job answers in, so that the next job of the same one goes on with its session.
alter table jobs add column chat text;

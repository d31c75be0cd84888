-- Why a job runs in the strict sandbox: whose words it was given.
alter table jobs add column confined text;
-- What there is to say about a firing beside its reason, in words.
alter table firings add column note text;

-- Time at which the platform last refused a part of the answer for good; null if it has refused none.
alter table chat_answers add column refused_at integer;
create index chat_answers_refused on chat_answers (refused_at) where refused_at is not null;

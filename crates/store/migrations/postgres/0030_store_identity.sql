-- The random id of this store. A state folder remembers it, and so knows to which store its running attempts belong.
create table store_identity (
    id       bigint primary key check (id = 1),
    store_id text not null
);

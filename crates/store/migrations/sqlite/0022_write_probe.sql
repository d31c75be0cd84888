-- One row that is written when somebody asks whether the store can be written.
create table write_probe (
    id integer primary key check (id = 1),
    probed_at integer not null
) strict;

-- State of other programs that was imported, or that a person chose not to import: each source once.
create table imports (
    source      text primary key,
    imported_at integer not null
) strict;

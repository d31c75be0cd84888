-- Who may use the API over TCP. Of a token only the SHA-256 is kept, so that nobody can take one from here.
create table tokens (
    id           text primary key,
    name         text not null,
    scope        text not null,
    hash         text not null unique,
    created_at   integer not null,
    last_used_at integer,
    expires_at   integer,
    revoked_at   integer
) strict;

-- A name is free again when its token is revoked.
create unique index tokens_by_name on tokens (name) where revoked_at is null;

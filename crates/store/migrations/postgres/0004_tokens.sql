-- Who may use the API over TCP. Of a token only the SHA-256 is kept, so that nobody can take one from here.
create table tokens (
    id           text primary key,
    name         text not null,
    scope        text not null,
    hash         text not null unique,
    created_at   bigint not null,
    last_used_at bigint,
    expires_at   bigint,
    revoked_at   bigint
);

-- A name is free again when its token is revoked.
create unique index tokens_by_name on tokens (name) where revoked_at is null;

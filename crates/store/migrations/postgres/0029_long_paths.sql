-- An index entry of PostgreSQL has at most about 2,600 bytes, and a path can be longer, so the index has its hash.
alter table workspaces drop constraint workspaces_pkey;
create unique index workspaces_by_path on workspaces (node, md5(path));

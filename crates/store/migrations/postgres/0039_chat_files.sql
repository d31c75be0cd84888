-- Files that agents send into the chats that their jobs answer. The content is in the folder of the job, on the node
-- that ran the attempt.
create table chat_files (
    job_id     text not null,
    number     bigint not null,
    -- The agent's own id of the request. A repeated request sends the file once.
    key        text not null,
    node       text not null,
    name       text not null,
    -- Text that is posted with the file, in Markdown; empty for none.
    message    text not null,
    -- Number of lines of the job's output that were written before the file.
    after_line bigint not null,
    created_at bigint not null,
    -- Time of the first try to post the file.
    tried_at   bigint,
    posted_at  bigint,
    primary key (job_id, number)
);
create unique index chat_files_by_key on chat_files (job_id, key);

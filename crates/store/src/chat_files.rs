//! Files that agents send into the chats that their jobs answer.

use cowhand_core::id::JobId;
use cowhand_core::job::JobState;
use jiff::Timestamp;

use super::database::db::{Row, args};
use super::database::dialect::statements;
use super::{Store, StoreError, jobs};

statements! {
    FILE_OF_KEY = same "select number, name from chat_files where job_id = $1 and key = $2";
    COUNT_FILES = same "select count(*) as files from chat_files where job_id = $1";
    ADD_FILE = same "insert into chat_files (job_id, number, key, node, name, message, after_line, created_at) \
        values ($1, $2, $3, $4, $5, $6, $7, $8)";
    UNPOSTED_FILES = same "select * from chat_files where job_id = $1 and node = $2 and posted_at is null \
        order by after_line, number";
    FILE_TRIED = same "update chat_files set tried_at = $3 where job_id = $1 and number = $2 and tried_at is null";
    FILE_POSTED = same "update chat_files set posted_at = $3 where job_id = $1 and number = $2";
}

/// A file that an agent sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentFile {
    pub job: JobId,
    /// Number of the file within the job, counted from 1.
    pub number: u32,
    /// Key that the agent has chosen for the request.
    pub key: String,
    /// Node that has the content.
    pub node: String,
    pub name: String,
    /// Text that is posted with the file, in Markdown; empty for none.
    pub message: String,
    /// Number of lines of the job's output that were written before the file.
    pub after_line: u64,
    pub created_at: Timestamp,
    /// Time of the first try to post the file.
    pub tried_at: Option<Timestamp>,
}

/// Result of sending a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSent {
    /// The file has this number. It was stored now, or by an earlier request with the same key.
    Made(u32),
    TooMany,
    /// The attempt does not run.
    NotRunning,
}

impl Store {
    /// Returns the name of the file that an earlier request with this key has sent; `None` if there was none.
    pub async fn chat_file_of_key(&self, job: JobId, key: String) -> Result<Option<String>, StoreError> {
        let row =
            self.read(move |tx| Box::pin(async move { tx.one(FILE_OF_KEY, args![job.as_str(), key]).await }));
        row.await?.map(|row| row.get("name")).transpose()
    }

    /// Returns how many files a job has sent.
    pub async fn count_chat_files(&self, job: JobId) -> Result<u32, StoreError> {
        let row =
            self.read(move |tx| Box::pin(async move { tx.one(COUNT_FILES, args![job.as_str()]).await }));
        row.await?.map_or(Ok(0), |row| row.count("files"))
    }

    /// Stores a file that a running attempt sends, unless the job has `max` files. The number of `file` is not used.
    pub async fn send_chat_file(
        &self,
        file: SentFile,
        attempt: u32,
        max: u32,
    ) -> Result<FileSent, StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                let job = jobs::lock(tx, &file.job).await?;
                let id = file.job.as_str();
                if let Some(row) = tx.one(FILE_OF_KEY, args![id, file.key.as_str()]).await? {
                    return Ok(FileSent::Made(row.count("number")?));
                }
                if !matches!(job.state(), JobState::Running { .. }) || job.attempts() != attempt {
                    return Ok(FileSent::NotRunning);
                }
                let count: u32 =
                    tx.one(COUNT_FILES, args![id]).await?.map_or(Ok(0), |row| row.count("files"))?;
                if count >= max {
                    return Ok(FileSent::TooMany);
                }
                let number = count + 1;
                let SentFile { key, node, name, message, after_line, created_at, .. } = file.clone();
                let line = i64::try_from(after_line).unwrap_or(i64::MAX);
                tx.execute(ADD_FILE, args![id, number, key, node, name, message, line, created_at]).await?;
                Ok(FileSent::Made(number))
            })
        })
        .await
    }

    /// Returns the files of a job whose content is on this node and that are not posted, in their order.
    pub async fn unposted_chat_files(&self, job: JobId, node: String) -> Result<Vec<SentFile>, StoreError> {
        let rows = self
            .read(move |tx| Box::pin(async move { tx.all(UNPOSTED_FILES, args![job.as_str(), node]).await }));
        rows.await?.iter().map(read).collect()
    }

    /// Records the first try to post a file.
    pub async fn chat_file_tried(&self, job: JobId, number: u32, now: Timestamp) -> Result<(), StoreError> {
        self.write(move |tx| {
            Box::pin(async move { tx.execute(FILE_TRIED, args![job.as_str(), number, now]).await.map(drop) })
        })
        .await
    }

    /// Records that a file is posted, or cannot be posted.
    pub async fn chat_file_posted(&self, job: JobId, number: u32, now: Timestamp) -> Result<(), StoreError> {
        self.write(move |tx| {
            Box::pin(async move { tx.execute(FILE_POSTED, args![job.as_str(), number, now]).await.map(drop) })
        })
        .await
    }
}

fn read(row: &Row) -> Result<SentFile, StoreError> {
    Ok(SentFile {
        job: row.parse("job_id")?,
        number: row.count("number")?,
        key: row.get("key")?,
        node: row.get("node")?,
        name: row.get("name")?,
        message: row.get("message")?,
        after_line: u64::try_from(row.get::<i64>("after_line")?).unwrap_or_default(),
        created_at: row.time("created_at")?,
        tried_at: row.time_opt("tried_at")?,
    })
}

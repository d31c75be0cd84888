//! Messages of people in the web chat.

use cowhand_core::actor::Actor;
use cowhand_core::id::JobId;
use cowhand_core::job::Job;
use jiff::Timestamp;

use super::database::db::{Row, Tx, args};
use super::database::dialect::statements;
use super::jobs::to_json;
use super::{Store, StoreError, jobs, web_conversations};

statements! {
    ADD_WEB_MESSAGE = same "insert into web_messages (conversation, number, key, text, sender, sent_at, resets, job_id) \
        values ($1, $2, $3, $4, $5, $6, $7, $8)";
    WEB_MESSAGE_OF_KEY = same "select * from web_messages where conversation = $1 and key = $2";
    WEB_MESSAGES = same "select * from web_messages where conversation = $1 and number < $2 order by number desc limit $3";
    WEB_MESSAGE_OF_JOB = same "select * from web_messages where job_id = $1";
    DROP_WEB_MESSAGE = same "delete from web_messages where job_id = $1 returning conversation";
}

/// Message of a person in a conversation of the web chat.
#[derive(Debug, Clone, PartialEq)]
pub struct WebMessage {
    pub conversation: String,
    /// Number within the conversation, from 1.
    pub number: u32,
    pub text: String,
    pub sender: Option<Actor>,
    pub sent_at: Timestamp,
    /// Number of resets of the conversation before this message.
    pub resets: u32,
    pub job: JobId,
}

impl Store {
    /// Returns at most `limit` messages of a conversation before the message with this number, the newest first, with
    /// their jobs.
    pub async fn web_messages(
        &self,
        conversation: String,
        before: u32,
        limit: u32,
    ) -> Result<Vec<(WebMessage, Job)>, StoreError> {
        self.read(move |tx| {
            Box::pin(async move {
                let rows = tx.all(WEB_MESSAGES, args![conversation, before, limit]).await?;
                let messages = rows.iter().map(read).collect::<Result<Vec<_>, _>>()?;
                let ids: Vec<JobId> = messages.iter().map(|message| message.job.clone()).collect();
                let jobs = jobs::by_ids(tx, &ids).await?;
                let with_job = |message: WebMessage| {
                    let job = jobs.iter().find(|job| *job.id() == message.job)?.clone();
                    Some((message, job))
                };
                Ok(messages.into_iter().filter_map(with_job).collect())
            })
        })
        .await
    }

    /// Returns the message that a job answers; `None` for any other job.
    pub async fn web_message_of_job(&self, job: JobId) -> Result<Option<WebMessage>, StoreError> {
        let row = self
            .read(move |tx| Box::pin(async move { tx.one(WEB_MESSAGE_OF_JOB, args![job.as_str()]).await }));
        row.await?.as_ref().map(read).transpose()
    }
}

/// Adds a message with this key to its conversation, which the caller has locked.
pub(super) async fn insert(
    tx: &mut Tx<'_>,
    message: &WebMessage,
    key: Option<String>,
) -> Result<(), StoreError> {
    let WebMessage { conversation, number, text, sender, sent_at, resets, job } = message;
    web_conversations::count_message(tx, conversation, *sent_at).await?;
    let sender = sender.as_ref().map(to_json).transpose()?;
    let row =
        args![conversation.as_str(), *number, key, text.as_str(), sender, *sent_at, *resets, job.as_str()];
    tx.execute(ADD_WEB_MESSAGE, row).await.map(drop)
}

/// Adds the messages to a running job that became the prompt of its next turn as one message to the conversation of the
/// job, if the job belongs to one. The caller has locked the schedule of the job.
pub(super) async fn add_next_turn(
    tx: &mut Tx<'_>,
    ended: &JobId,
    next: &Job,
    sender: Option<Actor>,
    now: Timestamp,
) -> Result<(), StoreError> {
    let Some(row) = tx.one(WEB_MESSAGE_OF_JOB, args![ended.as_str()]).await? else { return Ok(()) };
    let WebMessage { conversation, resets, .. } = read(&row)?;
    let Some(stored) = web_conversations::lock(tx, &conversation).await? else { return Ok(()) };
    let message = WebMessage {
        conversation,
        number: stored.last_number + 1,
        text: next.prompt().unwrap_or_default().to_owned(),
        sender,
        sent_at: now,
        resets,
        job: next.id().clone(),
    };
    insert(tx, &message, None).await
}

/// Removes the message of a removed job, and its conversation if that was the last message.
pub(super) async fn remove_of_job(tx: &mut Tx<'_>, job: &JobId) -> Result<(), StoreError> {
    if let Some(row) = tx.one(DROP_WEB_MESSAGE, args![job.as_str()]).await? {
        let conversation: String = row.get("conversation")?;
        web_conversations::remove_if_empty(tx, &conversation).await?;
    }
    Ok(())
}

/// Returns the message that was added with this key.
pub(super) async fn of_key(
    tx: &mut Tx<'_>,
    conversation: &str,
    key: &str,
) -> Result<Option<WebMessage>, StoreError> {
    tx.one(WEB_MESSAGE_OF_KEY, args![conversation, key]).await?.as_ref().map(read).transpose()
}

fn read(row: &Row) -> Result<WebMessage, StoreError> {
    Ok(WebMessage {
        conversation: row.get("conversation")?,
        number: row.count("number")?,
        text: row.get("text")?,
        sender: row.json_opt("sender")?,
        sent_at: row.time("sent_at")?,
        resets: row.count("resets")?,
        job: row.parse("job_id")?,
    })
}

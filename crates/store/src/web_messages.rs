//! Messages of people in the web chat. A message, its firing and its job are written in one transaction.

use cowhand_core::actor::Actor;
use cowhand_core::event::Fact;
use cowhand_core::firing::{Decision, NewFiring};
use cowhand_core::id::{AgentName, JobId};
use cowhand_core::job::Job;
use cowhand_core::schedule::ScheduleRecord;
use cowhand_core::web_chat::chat_text;
use jiff::Timestamp;

use super::database::db::{Row, Tx, args};
use super::database::dialect::statements;
use super::jobs::to_json;
use super::web_conversations::NewWebConversation;
use super::{Fired, Store, StoreError, firings, jobs, schedules, web_conversations};

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

/// A new message, with the firing whose job answers it.
#[derive(Debug, Clone)]
pub struct NewWebMessage {
    pub conversation: String,
    /// The conversation, if this is its first message.
    pub begin: Option<NewWebConversation>,
    pub agent: AgentName,
    /// Key of the client: a repeated message with the same key is not added.
    pub key: Option<String>,
    pub text: String,
    /// Schedule of the web chat, which is stored with the first message of its agent.
    pub schedule: ScheduleRecord,
    pub firing: NewFiring,
}

/// Result of sending a message.
#[derive(Debug, Clone, PartialEq)]
pub enum WebMessageSent {
    New(WebMessage, Box<Job>),
    /// The message that an earlier request with this key has added.
    Existing(WebMessage, Box<Job>),
    /// An earlier request with this key has added a message, which was removed with its job.
    Removed,
    NoConversation,
}

impl Store {
    /// Adds a message with its firing and its job, once for each key.
    pub async fn send_web_message(
        &self,
        message: NewWebMessage,
        now: Timestamp,
    ) -> Result<WebMessageSent, StoreError> {
        let random = self.random;
        self.write(move |tx| Box::pin(send(tx, message, now, random))).await
    }

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

async fn send(
    tx: &mut Tx<'_>,
    new: NewWebMessage,
    now: Timestamp,
    random: fn() -> u64,
) -> Result<WebMessageSent, StoreError> {
    let NewWebMessage { conversation, begin, agent, key, text, schedule, mut firing } = new;
    match begin {
        Some(begin) => web_conversations::add(tx, &conversation, &agent, begin, now).await?,
        None if web_conversations::get(tx, &conversation).await?.is_none() => {
            return Ok(WebMessageSent::NoConversation);
        }
        None => {}
    }
    if schedules::add(tx, &schedule).await? {
        schedules::record(tx, &schedule, Fact::ScheduleArmed, now);
    }
    // The end of a job also locks its schedule first, and then the conversation of its next turn.
    schedules::lock(tx, schedule.id).await?;
    let Some(stored) = web_conversations::lock(tx, &conversation).await? else {
        return Ok(WebMessageSent::NoConversation);
    };
    if let Some(key) = &key
        && let Some(row) = tx.one(WEB_MESSAGE_OF_KEY, args![conversation.as_str(), key.as_str()]).await?
    {
        let message = read(&row)?;
        let job = jobs::get(tx, &message.job).await?;
        return Ok(
            job.map_or(WebMessageSent::Removed, |job| WebMessageSent::Existing(message, Box::new(job)))
        );
    }
    if let Decision::Run(job) = &mut firing.decision {
        job.chat = Some(chat_text(&conversation, stored.resets));
    }
    let job = match firings::fire_once(tx, firing, None, now, random).await? {
        Fired::Recorded(Some(job)) | Fired::Claimed { job, .. } => job,
        Fired::Recorded(None) | Fired::Duplicate => return Ok(WebMessageSent::Removed),
    };
    let message = WebMessage {
        conversation,
        number: stored.last_number + 1,
        text,
        sender: tx.actor.clone(),
        sent_at: now,
        resets: stored.resets,
        job: job.id().clone(),
    };
    insert(tx, &message, key).await?;
    Ok(WebMessageSent::New(message, Box::new(job)))
}

async fn insert(tx: &mut Tx<'_>, message: &WebMessage, key: Option<String>) -> Result<(), StoreError> {
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

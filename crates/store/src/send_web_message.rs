//! Sends a message of the web chat: the message, its firing and its job are written in one transaction.

use cowhand_core::event::Fact;
use cowhand_core::firing::{Decision, NewFiring};
use cowhand_core::id::AgentName;
use cowhand_core::job::Job;
use cowhand_core::schedule::ScheduleRecord;
use cowhand_core::web_chat::chat_text;
use jiff::Timestamp;

use super::database::db::Tx;
use super::web_conversations::NewWebConversation;
use super::web_messages::WebMessage;
use super::{Fired, Store, StoreError, firings, jobs, schedules, web_conversations, web_messages};

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
        && let Some(message) = web_messages::of_key(tx, &conversation, key).await?
    {
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
    web_messages::insert(tx, &message, key).await?;
    Ok(WebMessageSent::New(message, Box::new(job)))
}

//! Tells the senders of queued messages their position in the queue.

use cowhand_chat::{Button, ButtonStyle};
use cowhand_core::chat::texts;
use cowhand_core::job::JobStatus;
use jiff::{SignedDuration, Timestamp};

use super::buttons::ButtonValue;
use super::context::ChatContext;
use super::posts::ChatReply;
use cowhand_store::{ChatAnswer, JobFilter, StoreError};

/// Time that a message may wait before its sender is told.
const NOTE_AFTER: SignedDuration = SignedDuration::from_secs(3);
/// Number of notes that are posted before the answers are looked at again.
const MAX_NOTES: u32 = 20;
/// Number of waiting jobs that are counted.
const MAX_COUNTED_JOBS: u32 = 1_000;

/// Posts a note below each message that waits, if this node is connected for the bot.
pub(super) async fn post_waiting_notes(context: &ChatContext) -> Result<(), StoreError> {
    let before = context.now().checked_sub(NOTE_AFTER).unwrap_or(Timestamp::MIN);
    for answer in context.store().chat_answers_without_note(before, MAX_NOTES).await? {
        post_note(context, &answer).await?;
    }
    Ok(())
}

async fn post_note(context: &ChatContext, answer: &ChatAnswer) -> Result<(), StoreError> {
    let platform = answer.origin.platform;
    let bot = context.bot_of(&answer.agent, platform).filter(|bot| ChatContext::is_connected(bot));
    let Some(bot) = bot else { return Ok(()) };
    let store = context.store();
    let firing = store.firing(answer.schedule, answer.key.clone()).await?;
    let Some(job) = firing.and_then(|firing| firing.job) else { return Ok(()) };
    let filter = JobFilter {
        agent: Some(answer.agent.clone()),
        status: Some(JobStatus::Pending),
        ..JobFilter::default()
    };
    let waiting = store.jobs(filter, MAX_COUNTED_JOBS).await?;
    let Some(own) = waiting.iter().find(|waiting| *waiting.id() == job) else { return Ok(()) };
    let position = waiting.iter().filter(|waiting| waiting.created_at() <= own.created_at()).count();
    let cancel = Button {
        label: "Cancel".to_owned(),
        value: ButtonValue::Cancel(job).to_string(),
        style: ButtonStyle::Neutral,
    };
    let reply = ChatReply {
        place: answer.origin.place.clone(),
        reply_to: Some(answer.origin.message.clone()),
        key: &[&answer.schedule.to_string(), answer.key.as_str(), "waits"],
        first_tried_at: answer.created_at,
        text: texts::waiting(&answer.agent, position, platform),
        buttons: vec![cancel],
    };
    // A note that the platform refuses is not tried again; its id is empty.
    let note = context.reply(&bot, reply).await.unwrap_or_default();
    store.save_waiting_note(answer.schedule, answer.key.clone(), note).await
}

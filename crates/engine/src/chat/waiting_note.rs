//! Tells the senders of queued messages their position in the queue, and keeps this position up to date.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use cowhand_chat::{Button, ButtonStyle};
use cowhand_core::chat::texts;
use cowhand_core::id::{AgentName, JobId, ScheduleId};
use cowhand_core::job::{Job, JobStatus};
use cowhand_core::trigger::FiringKey;
use futures_util::{StreamExt, stream};
use jiff::{SignedDuration, Timestamp};
use tokio::time::sleep;
use tracing::{debug, warn};

use super::bot::Bot;
use super::buttons::ButtonValue;
use super::context::ChatContext;
use super::posts::ChatReply;
use cowhand_store::{ChatAnswer, JobFilter, StoreError};
use cowhand_system::panic::restart_on_panic;

/// Time that a message may wait before its sender is told.
const NOTE_AFTER: SignedDuration = SignedDuration::from_secs(3);
/// Time between two checks of the waiting messages.
const NOTE_EVERY: Duration = Duration::from_secs(2);
/// Maximum number of waiting messages that are read.
const MAX_WAITING: u32 = 200;
/// Maximum number of waiting messages of one author in one conversation that get a note. More notes would only delay
/// answers.
const MAX_NOTES_OF_AUTHOR: u32 = 3;
/// Maximum number of waiting jobs that are counted.
const MAX_COUNTED_JOBS: u32 = 1_000;
/// Maximum number of channels in which notes are posted at the same time.
const CHANNELS_TOGETHER: usize = 16;

/// Positions that the notes of this process show.
type ShownPositions = HashMap<(ScheduleId, FiringKey), usize>;

/// A waiting message with its position in the queue of the agent.
struct WaitingMessage {
    bot: Arc<Bot>,
    answer: ChatAnswer,
    job: JobId,
    position: usize,
}

/// Posts a note below each message that waits, and edits it when the position changes, until the task is aborted.
pub(super) async fn keep_notes(context: Arc<ChatContext>) {
    restart_on_panic("the task that tells senders of chat messages their position", || async {
        let mut shown = ShownPositions::new();
        loop {
            sleep(NOTE_EVERY).await;
            if let Err(error) = show_positions(&context, &mut shown).await {
                warn!("cannot read which senders of chat messages wait: {error}");
            }
        }
    })
    .await;
}

async fn show_positions(context: &ChatContext, shown: &mut ShownPositions) -> Result<(), StoreError> {
    let before = context.now().checked_sub(NOTE_AFTER).unwrap_or(Timestamp::MIN);
    let answers = context.store().waiting_chat_answers(before, MAX_WAITING).await?;
    let mut waiting = waiting_messages(context, answers).await?;
    waiting.retain(|message| shown.get(&message.key()) != Some(&message.position));
    let mut channels: HashMap<String, Vec<WaitingMessage>> = HashMap::new();
    for message in waiting {
        channels.entry(message.answer.origin.place.channel.clone()).or_default().push(message);
    }
    let show_all = |messages: Vec<WaitingMessage>| async move {
        let mut posted = Vec::new();
        for message in messages {
            message.show(context).await?;
            posted.push((message.key(), message.position));
        }
        Ok::<_, StoreError>(posted)
    };
    let posted = stream::iter(channels.into_values()).map(show_all).buffer_unordered(CHANNELS_TOGETHER);
    let posted: Vec<_> = posted.collect().await;
    for positions in posted {
        shown.extend(positions?);
    }
    if shown.len() > 2 * MAX_WAITING as usize {
        shown.clear();
    }
    Ok(())
}

/// Returns the messages that have or get a note, with their positions.
async fn waiting_messages(
    context: &ChatContext,
    answers: Vec<ChatAnswer>,
) -> Result<Vec<WaitingMessage>, StoreError> {
    let mut notes: HashMap<(AgentName, String, String), u32> = HashMap::new();
    let mut queues: HashMap<AgentName, Vec<Job>> = HashMap::new();
    let mut waiting = Vec::new();
    for answer in answers {
        let of_author = (answer.agent.clone(), answer.conversation.clone(), answer.origin.author.id.clone());
        let count = notes.entry(of_author).or_default();
        *count += 1;
        if *count > MAX_NOTES_OF_AUTHOR && answer.waiting_note.is_none() {
            continue;
        }
        // An empty id means that the platform has refused the note.
        let is_refused = answer.waiting_note.as_ref().is_some_and(String::is_empty);
        let bot = context.bot_of(&answer.agent, answer.origin.platform);
        let Some(bot) = bot.filter(|bot| !is_refused && ChatContext::is_connected(bot)) else { continue };
        let firing = context.store().firing(answer.schedule, answer.key.clone()).await?;
        let Some(job) = firing.and_then(|firing| firing.job) else { continue };
        if !queues.contains_key(&answer.agent) {
            queues.insert(answer.agent.clone(), queue_of(context, &answer.agent).await?);
        }
        let queue = queues.get(&answer.agent).map_or(&[][..], Vec::as_slice);
        let Some(own) = queue.iter().find(|waiting| *waiting.id() == job) else { continue };
        let position = queue.iter().filter(|waiting| waiting.created_at() <= own.created_at()).count();
        waiting.push(WaitingMessage { bot, answer, job, position });
    }
    Ok(waiting)
}

async fn queue_of(context: &ChatContext, agent: &AgentName) -> Result<Vec<Job>, StoreError> {
    let filter =
        JobFilter { agent: Some(agent.clone()), status: Some(JobStatus::Pending), ..JobFilter::default() };
    context.store().jobs(filter, MAX_COUNTED_JOBS).await
}

impl WaitingMessage {
    fn key(&self) -> (ScheduleId, FiringKey) {
        (self.answer.schedule, self.answer.key.clone())
    }

    /// Posts the note, or edits it.
    async fn show(&self, context: &ChatContext) -> Result<(), StoreError> {
        let Self { bot, answer, position, .. } = self;
        let text = texts::waiting(&answer.agent, *position, &self.job, bot.platform);
        if let Some(note) = &answer.waiting_note {
            edit(context, bot, answer, note, text, vec![self.cancel_button()]).await;
            return self.withdraw_if_begun(context, note).await;
        }
        let reply = ChatReply {
            place: answer.origin.place.clone(),
            reply_to: Some(answer.origin.message.clone()),
            key: &[&answer.schedule.to_string(), answer.key.as_str(), "waits"],
            first_tried_at: answer.created_at,
            text,
            buttons: vec![self.cancel_button()],
        };
        // A note that the platform refuses is not tried again; its id is empty.
        let note = context.reply(bot, reply).await.unwrap_or_default();
        let is_saved = context.store().save_waiting_note(answer.schedule, answer.key.clone(), note.clone());
        if !is_saved.await? && !note.is_empty() {
            self.withdraw(context, &note).await;
        }
        Ok(())
    }

    /// Corrects the note if the job has started meanwhile. In this case, the answer may have edited the note before
    /// this edit.
    async fn withdraw_if_begun(&self, context: &ChatContext, note: &str) -> Result<(), StoreError> {
        let ChatAnswer { schedule, key, .. } = &self.answer;
        let is_saved = context.store().save_waiting_note(*schedule, key.clone(), note.to_owned()).await?;
        if !is_saved {
            self.withdraw(context, note).await;
        }
        Ok(())
    }

    async fn withdraw(&self, context: &ChatContext, note: &str) {
        let text = texts::started(&self.answer.agent, self.bot.platform);
        edit(context, &self.bot, &self.answer, note, text, Vec::new()).await;
    }

    fn cancel_button(&self) -> Button {
        Button {
            label: "Cancel".to_owned(),
            value: ButtonValue::Cancel(self.job.clone()).to_string(),
            style: ButtonStyle::Neutral,
        }
    }
}

async fn edit(
    context: &ChatContext,
    bot: &Bot,
    answer: &ChatAnswer,
    note: &str,
    text: String,
    buttons: Vec<Button>,
) {
    let text = context.fleet.redactor().redact(&text).into_owned();
    if let Err(error) = bot.connector.edit(&answer.origin.place, note, &text, &buttons).await {
        debug!(bot = bot.key, "cannot edit the note of a waiting chat message: {error}");
    }
}

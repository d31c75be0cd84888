//! Tells the senders of queued messages their position in the queue, or that their budget has no room, and keeps it true.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use cowhand_chat::{Button, ButtonStyle};
use cowhand_core::budget::OverBudget;
use cowhand_core::chat::texts;
use cowhand_core::id::{AgentName, JobId, ScheduleId};
use cowhand_core::job::{Job, JobStatus};
use cowhand_core::roster::Agent;
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

/// Texts of the notes of this process.
type ShownNotes = HashMap<(ScheduleId, FiringKey), String>;

/// A waiting message with the text of its note.
struct WaitingMessage {
    bot: Arc<Bot>,
    answer: ChatAnswer,
    job: JobId,
    text: String,
}

/// Posts a note below each message that waits, and edits it when the position changes, until the task is aborted.
pub(super) async fn keep_notes(context: Arc<ChatContext>) {
    restart_on_panic("the task that tells senders of chat messages their position", || async {
        let mut shown = ShownNotes::new();
        loop {
            sleep(NOTE_EVERY).await;
            if let Err(error) = show_notes(&context, &mut shown).await {
                warn!("cannot read which senders of chat messages wait: {error}");
            }
        }
    })
    .await;
}

async fn show_notes(context: &ChatContext, shown: &mut ShownNotes) -> Result<(), StoreError> {
    let before = context.now().checked_sub(NOTE_AFTER).unwrap_or(Timestamp::MIN);
    let answers = context.store().waiting_chat_answers(before, MAX_WAITING).await?;
    let mut waiting = waiting_messages(context, answers).await?;
    waiting.retain(|message| shown.get(&message.key()) != Some(&message.text));
    let mut channels: HashMap<String, Vec<WaitingMessage>> = HashMap::new();
    for message in waiting {
        channels.entry(message.answer.origin.place.channel.clone()).or_default().push(message);
    }
    let show_all = |messages: Vec<WaitingMessage>| async move {
        let mut posted = Vec::new();
        for message in messages {
            message.show(context).await?;
            posted.push((message.key(), message.text));
        }
        Ok::<_, StoreError>(posted)
    };
    let posted = stream::iter(channels.into_values()).map(show_all).buffer_unordered(CHANNELS_TOGETHER);
    let posted: Vec<_> = posted.collect().await;
    for notes in posted {
        shown.extend(notes?);
    }
    if shown.len() > 2 * MAX_WAITING as usize {
        shown.clear();
    }
    Ok(())
}

/// Returns the messages that have or get a note, with its text: the position in the queue of the agent, or that the budget
/// of the sender has no room.
async fn waiting_messages(
    context: &ChatContext,
    answers: Vec<ChatAnswer>,
) -> Result<Vec<WaitingMessage>, StoreError> {
    let mut notes: HashMap<(AgentName, String, String), u32> = HashMap::new();
    let mut queues: HashMap<AgentName, Vec<Job>> = HashMap::new();
    let mut waiting = Vec::new();
    let over_person = jobs_without_budget(context, &answers).await?;
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
        let text = match over_person.get(&job) {
            Some(over) => texts::waits_for_budget(&answer.agent, over, &job, bot.platform),
            None => texts::waiting(&answer.agent, position, &job, bot.platform),
        };
        waiting.push(WaitingMessage { bot, answer, job, text });
    }
    Ok(waiting)
}

/// Returns the waiting jobs for which their senders have no budget now.
async fn jobs_without_budget(
    context: &ChatContext,
    answers: &[ChatAnswer],
) -> Result<HashMap<JobId, OverBudget>, StoreError> {
    let roster = context.fleet.roster();
    let has_budget = |answer: &ChatAnswer| roster.agent(&answer.agent).is_some_and(Agent::has_person_budget);
    if !answers.iter().any(has_budget) {
        return Ok(HashMap::new());
    }
    Ok(context.store().spending(&roster, context.now()).await?.over_person)
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
        let Self { bot, answer, text, .. } = self;
        let text = text.clone();
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
        let note = match context.try_reply(bot, reply).await {
            Ok(note) => note.unwrap_or_default(),
            // It is tried again when the position changes.
            Err(error) if error.is_temporary() => return Ok(()),
            // A note that the platform refuses is not tried again; its id is empty.
            Err(_) => String::new(),
        };
        let is_saved = context.store().save_waiting_note(answer.schedule, answer.key.clone(), note.clone());
        if !is_saved.await? && !note.is_empty() {
            self.withdraw(context, &note).await?;
        }
        Ok(())
    }

    /// Corrects the note if the job has started meanwhile. In this case, the answer may have edited the note before
    /// this edit.
    async fn withdraw_if_begun(&self, context: &ChatContext, note: &str) -> Result<(), StoreError> {
        let ChatAnswer { schedule, key, .. } = &self.answer;
        let is_saved = context.store().save_waiting_note(*schedule, key.clone(), note.to_owned()).await?;
        if !is_saved {
            self.withdraw(context, note).await?;
        }
        Ok(())
    }

    /// Shows in the note what the answer shows. The answer may edit the note at the same time, so its text is read again
    /// after the edit.
    async fn withdraw(&self, context: &ChatContext, note: &str) -> Result<(), StoreError> {
        let ChatAnswer { schedule, key, agent, .. } = &self.answer;
        let mut shown = None;
        loop {
            let answer = context.store().chat_answer(*schedule, key.clone()).await?;
            let of_answer = answer.and_then(|answer| answer.progress.note_text);
            let text = of_answer.unwrap_or_else(|| texts::started(agent, self.bot.platform));
            if shown.as_ref() == Some(&text) {
                return Ok(());
            }
            edit(context, &self.bot, &self.answer, note, text.clone(), Vec::new()).await;
            shown = Some(text);
        }
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

//! Posts the answer to one message: the output of its jobs, a progress message that is edited in place, and the end.
//!
//! The output of a job is on the node that runs the job, so that node posts the answer. The posts depend only on the
//! lines of the output, and the store counts them. Therefore a restarted daemon continues with the next post.

use std::sync::Arc;
use std::time::Duration;

use cowhand_core::actor::Actor;
use cowhand_core::chat::render::{AnswerEnd, AnswerOutcome, OutputRenderer};
use cowhand_core::chat::settings::PlatformChat;
use cowhand_core::chat::texts;
use cowhand_core::id::JobId;
use cowhand_core::job::{Job, JobState, Outcome};
use cowhand_core::schedule::FiringOutcome;
use jiff::SignedDuration;
use tokio::time::timeout;
use tracing::warn;

use super::accepted::REACTION_TIMEOUT;
use super::bot::Bot;
use super::context::ChatContext;
use super::job_output::OutputPosts;
use super::posts::ChatReply;
use crate::schedule_view::why_of;
use cowhand_store::{ChatAnswer, LedgerRow, StoreError};
use cowhand_system::fault;

/// Age above which an answer without a firing counts as not delivered.
const UNDELIVERED_AFTER: SignedDuration = SignedDuration::from_mins(1);
/// Shortest time between two checks of a firing or a job that has not started.
const LOOK_PAUSE: Duration = Duration::from_millis(300);

/// Result of a try to post an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AnswerStep {
    /// Nothing more is posted for the answer.
    Done,
    /// Another node posts the answer, or it cannot be posted now.
    Later,
}

/// An answer that this node posts.
pub(super) struct Posting<'a> {
    pub(super) context: &'a ChatContext,
    pub(super) bot: Arc<Bot>,
    pub(super) chat: PlatformChat,
    pub(super) answer: ChatAnswer,
    /// True if the agent has no chat any more. Nothing more is posted then.
    pub(super) has_no_chat: bool,
}

/// Posts an answer as far as possible.
pub(super) async fn post_answer(context: &ChatContext, answer: ChatAnswer) -> Result<AnswerStep, StoreError> {
    let platform = answer.origin.platform;
    let Some(chat) = context.chat_of(&answer.agent, platform) else {
        warn!(agent = %answer.agent, "the agent has no chat on {platform} any more; its open answers are dropped");
        context.store().end_chat_answer(answer.schedule, answer.key, context.now()).await?;
        return Ok(AnswerStep::Done);
    };
    let Some(bot) = context.bot_of(&answer.agent, platform) else { return Ok(AnswerStep::Later) };
    let mut posting = Posting { context, bot, chat, answer, has_no_chat: false };
    loop {
        let seen = context.store().committed();
        let ChatAnswer { schedule, key, .. } = &posting.answer;
        let Some(firing) = context.store().firing(*schedule, key.clone()).await? else {
            return posting.drop_if_undelivered().await;
        };
        match firing.outcome {
            FiringOutcome::Ran => return posting.post_jobs(firing).await,
            FiringOutcome::Preparing => wait_for_change(context, seen).await,
            FiringOutcome::Skipped(_) | FiringOutcome::Missed | FiringOutcome::Coalesced => {
                return posting.post_reason(&firing).await;
            }
        }
    }
}

async fn wait_for_change(context: &ChatContext, seen: i64) {
    context.store().changed(seen).await;
    tokio::time::sleep(LOOK_PAUSE).await;
}

impl Posting<'_> {
    /// Ends an answer whose message will not be delivered any more. For example, the daemon was killed before the
    /// delivery, and the message was deleted meanwhile.
    async fn drop_if_undelivered(&self) -> Result<AnswerStep, StoreError> {
        let (store, answer) = (self.context.store(), &self.answer);
        let Some(inbox) = self.bot.inbox() else { return Ok(AnswerStep::Later) };
        let is_recent = self.context.now().duration_since(answer.created_at) < UNDELIVERED_AFTER;
        if is_recent || store.open_chat_message(inbox, answer.origin.message.clone()).await?.is_some() {
            return Ok(AnswerStep::Later);
        }
        if store.firing(answer.schedule, answer.key.clone()).await?.is_some() {
            return Ok(AnswerStep::Later);
        }
        warn!(agent = %answer.agent, message = answer.origin.message, "a chat message was not delivered");
        store.end_chat_answer(answer.schedule, answer.key.clone(), self.context.now()).await?;
        Ok(AnswerStep::Done)
    }

    /// Posts the reason why the firing ran nothing.
    async fn post_reason(&mut self, firing: &LedgerRow) -> Result<AnswerStep, StoreError> {
        if !ChatContext::is_connected(&self.bot) {
            return Ok(AnswerStep::Later);
        }
        self.begin().await?;
        let why = why_of(firing, None, None, true);
        self.post_note(texts::not_run(&why, self.bot.platform)).await;
        self.end().await
    }

    /// Posts the output of each job of the firing.
    async fn post_jobs(mut self, firing: LedgerRow) -> Result<AnswerStep, StoreError> {
        for row in firing.jobs {
            match self.post_job(&row.id).await? {
                AnswerStep::Done => {}
                AnswerStep::Later => return Ok(AnswerStep::Later),
            }
        }
        self.end().await
    }

    async fn post_job(&mut self, id: &JobId) -> Result<AnswerStep, StoreError> {
        let store = self.context.store();
        let history = loop {
            let seen = store.committed();
            let Some(history) = store.history(id.clone()).await? else { return Ok(AnswerStep::Done) };
            match history.job.state() {
                JobState::Pending { .. } => wait_for_change(self.context, seen).await,
                JobState::Running { .. } if history.attempts.is_empty() => {
                    wait_for_change(self.context, seen).await;
                }
                JobState::Running { .. } | JobState::Ended { .. } => break history,
            }
        };
        let is_over = matches!(history.job.state(), JobState::Ended { .. });
        let Some(attempt) = history.attempts.last() else { return self.post_end(&history.job).await };
        if attempt.node == self.context.node() {
            return OutputPosts::begin(self, id).await?.post().await;
        }
        if !is_over || store.is_node_running(attempt.node.clone()).await? {
            return Ok(AnswerStep::Later);
        }
        // The output is on a machine whose daemon does not run.
        if !ChatContext::is_connected(&self.bot) {
            return Ok(AnswerStep::Later);
        }
        self.post_asks(id).await?;
        self.post_end(&history.job).await
    }

    /// Posts the end of a job whose output is not on this node.
    async fn post_end(&mut self, job: &Job) -> Result<AnswerStep, StoreError> {
        if !ChatContext::is_connected(&self.bot) {
            return Ok(AnswerStep::Later);
        }
        self.begin().await?;
        let platform = self.bot.platform;
        let end = self.answer_end(job).await?;
        if let (0, AnswerOutcome::Cancelled { by }) = (job.attempts(), &end.outcome) {
            self.post_note(texts::cancelled(by.as_deref(), platform)).await;
            return Ok(AnswerStep::Done);
        }
        let mut renderer = OutputRenderer::new(platform, &self.chat.output);
        let posts = renderer.end(&end);
        let texts: Vec<String> = posts.into_iter().map(|post| post.text).collect();
        if let Some(message) = self.answer.progress.progress_message.take() {
            // The node of the job has not shown the end in this message.
            self.edit(&message, &renderer.progress()).await;
        }
        self.post_note(texts.join("\n")).await;
        Ok(AnswerStep::Done)
    }

    /// Returns the end of a job for the chat. Names the person who cancelled the job, unless that person caused the
    /// job.
    pub(super) async fn answer_end(&self, job: &Job) -> Result<AnswerEnd, StoreError> {
        let mut end = answer_end(job);
        if let AnswerOutcome::Cancelled { by } = &mut end.outcome {
            let cancellation = self.context.store().cancellation_of(job).await?;
            let origin = &self.answer.origin;
            *by = match cancellation.and_then(|cancellation| cancellation.by) {
                Some(Actor::Chat { platform, id, .. })
                    if platform == origin.platform && id == origin.requester().id =>
                {
                    None
                }
                Some(Actor::Chat { name, .. }) => Some(name),
                by => by.map(|by| by.to_string()),
            };
        }
        Ok(end)
    }

    /// Records that the answer has begun, so that the waiting note does not change any more.
    async fn begin(&mut self) -> Result<(), StoreError> {
        self.save().await?;
        self.read_waiting_note().await
    }

    /// Replaces the text of a message, and removes its buttons. Returns whether that succeeded.
    async fn edit(&self, message: &str, text: &str) -> bool {
        let text = self.context.fleet.redactor().redact(text).into_owned();
        let edited = self.bot.connector.edit(&self.answer.origin.place, message, &text, &[]).await;
        if let Err(error) = &edited {
            warn!(bot = self.bot.key, "cannot edit a message in a chat: {error}");
        }
        edited.is_ok()
    }

    /// Shows a text in place of the waiting note, or posts the text if there is no waiting note.
    async fn post_note(&self, text: String) {
        let note = self.answer.waiting_note.as_deref().filter(|note| !note.is_empty());
        let origin = &self.answer.origin;
        if let Some(note) = note
            && self.edit(note, &text).await
        {
            return;
        }
        let reply = ChatReply {
            place: origin.place.clone(),
            reply_to: Some(origin.message.clone()),
            key: &[&self.answer.schedule.to_string(), self.answer.key.as_str(), "end"],
            first_tried_at: self.answer.created_at,
            text,
            buttons: Vec::new(),
        };
        self.context.reply(&self.bot, reply).await;
    }

    /// Removes the reaction that acknowledges the message, and ends the answer.
    async fn end(&self) -> Result<AnswerStep, StoreError> {
        let ChatAnswer { schedule, key, origin, .. } = &self.answer;
        if let Some(emoji) = &self.chat.output.acknowledge_emoji {
            // On Slack, this is the thread of the answer and not the place of the message. The connector of Slack needs
            // only the id of the message.
            let place = &origin.place;
            let removed = self.bot.connector.react(place, &origin.message, emoji, false);
            match timeout(REACTION_TIMEOUT, removed).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    warn!(bot = self.bot.key, "cannot remove the reaction to a chat message: {error}");
                }
                Err(_) => warn!(bot = self.bot.key, "cannot remove the reaction to a chat message in time"),
            }
        }
        fault::point("chat_answer_ends");
        self.context.store().end_chat_answer(*schedule, key.clone(), self.context.now()).await?;
        Ok(AnswerStep::Done)
    }
}

/// Returns the end of a job for the chat, without the person who cancelled the job.
fn answer_end(job: &Job) -> AnswerEnd {
    let outcome = match job.state() {
        JobState::Ended { outcome: Outcome::Failed { error, .. }, .. } => {
            AnswerOutcome::Failed { reason: error.message.clone() }
        }
        JobState::Ended { outcome: Outcome::Cancelled { .. }, .. } => AnswerOutcome::Cancelled { by: None },
        JobState::Ended { outcome: Outcome::Completed { .. }, .. }
        | JobState::Pending { .. }
        | JobState::Running { .. } => AnswerOutcome::Succeeded,
    };
    let duration = job.duration_seconds().and_then(|seconds| i64::try_from(seconds).ok());
    AnswerEnd {
        job: job.id().clone(),
        outcome,
        duration: duration.map(SignedDuration::from_secs),
        usage: job.usage().cloned(),
    }
}

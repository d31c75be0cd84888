//! Posts the end of an answer without output: why a firing ran nothing, and how a job ended whose output is not here.

use cowhand_chat::ChatError;
use cowhand_core::actor::Actor;
use cowhand_core::chat::render::{AnswerEnd, AnswerOutcome, OutputRenderer};
use cowhand_core::chat::texts;
use cowhand_core::id::JobId;
use cowhand_core::job::{Job, JobState, Outcome};
use jiff::SignedDuration;
use tokio::time::timeout;
use tracing::warn;

use super::accepted::REACTION_TIMEOUT;
use super::answer::{AnswerStep, Posting};
use super::context::ChatContext;
use super::posts::ChatReply;
use crate::schedule_view::why_of;
use cowhand_store::{ChatAnswer, StoreError};
use cowhand_system::fault;

/// The node that has the output of a job.
#[derive(Debug, Clone, Copy)]
pub(super) struct OutputNode<'a> {
    name: &'a str,
    /// True if its daemon runs, but cannot post.
    is_running: bool,
}

impl Posting<'_> {
    /// Posts the reason why the firing ran nothing.
    pub(super) async fn post_reason(&mut self) -> Result<AnswerStep, StoreError> {
        if !ChatContext::is_connected(&self.bot) {
            return Ok(AnswerStep::Later);
        }
        let (schedule, key) = (self.answer.schedule, self.answer.key.clone());
        let Some(firing) = self.context.store().firing(schedule, key).await? else {
            return Ok(AnswerStep::Later);
        };
        let why = why_of(&firing, None, None, true);
        self.end_with_note(texts::not_run(&why, self.bot.platform)).await
    }

    /// Posts the end of a job whose output is on another node, if that node does not post it.
    pub(super) async fn post_end_of_other_node(
        &mut self,
        id: &JobId,
        node: &str,
    ) -> Result<AnswerStep, StoreError> {
        let is_connected = ChatContext::is_connected(&self.bot);
        let is_running = self.context.store().is_node_running(node.to_owned()).await?;
        // A running node that has not begun cannot post, for example because its environment has no tokens.
        let is_posted_there = is_running && self.answer.node.as_deref() == Some(node);
        if !is_connected || is_posted_there || (!is_running && !self.context.is_gone(node).await?) {
            return Ok(AnswerStep::Later);
        }
        self.post_asks(id).await?;
        self.post_end_without_output(id, Some(OutputNode { name: node, is_running })).await
    }

    /// Posts the end of a job whose output is not on this node. `node` has the output; there is none if the job never
    /// ran.
    pub(super) async fn post_end_without_output(
        &mut self,
        id: &JobId,
        node: Option<OutputNode<'_>>,
    ) -> Result<AnswerStep, StoreError> {
        if self.must_stop || !ChatContext::is_connected(&self.bot) {
            return Ok(AnswerStep::Later);
        }
        let Some(job) = self.context.store().job(id.clone()).await? else { return self.end().await };
        let platform = self.bot.platform;
        let end = self.answer_end(&job).await?;
        if let (0, AnswerOutcome::Cancelled { by }) = (job.attempts(), &end.outcome) {
            return self.end_with_note(texts::cancelled(by.as_deref(), platform)).await;
        }
        let mut renderer = OutputRenderer::new(platform, &self.chat.output);
        let posts = renderer.end(&end);
        let text = match (&end.outcome, node) {
            (AnswerOutcome::Succeeded, Some(OutputNode { name, is_running })) => {
                texts::output_elsewhere(id, name, is_running, platform)
            }
            _ => posts.into_iter().map(|post| post.text).collect::<Vec<_>>().join("\n"),
        };
        if let Some(message) = self.answer.progress.progress_message.clone() {
            // The node of the job has not shown the end in this message.
            match self.edit(&message, &renderer.progress()).await {
                Err(error) if may_succeed_later(&error) => return Ok(AnswerStep::Later),
                Ok(()) | Err(_) => {}
            }
        }
        self.end_with_note(text).await
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

    /// Shows a text in place of the waiting note, or posts the text if there is no waiting note. Then ends the answer.
    /// If the platform cannot be reached, the answer stays open, and the text is posted later.
    async fn end_with_note(&mut self, text: String) -> Result<AnswerStep, StoreError> {
        self.keep_output();
        self.answer.progress.note_text = Some(text.clone());
        self.save().await?;
        if self.must_stop {
            return Ok(AnswerStep::Later);
        }
        self.read_waiting_note().await?;
        match self.post_note(text).await {
            Err(error) if may_succeed_later(&error) => Ok(AnswerStep::Later),
            Err(refusal) => {
                self.note_refusal(refusal.to_string());
                self.save().await?;
                self.end().await
            }
            Ok(()) => self.end().await,
        }
    }

    async fn post_note(&self, text: String) -> Result<(), ChatError> {
        if let Some(note) = self.answer.waiting_note.as_deref().filter(|note| !note.is_empty()) {
            match self.edit(note, &text).await {
                Err(error) if !may_succeed_later(&error) => {}
                edited => return edited,
            }
        }
        let origin = &self.answer.origin;
        let reply = ChatReply {
            place: origin.place.clone(),
            reply_to: Some(origin.message.clone()),
            key: &[&self.answer.schedule.to_string(), self.answer.key.as_str(), "end"],
            first_tried_at: self.answer.created_at,
            text,
            buttons: Vec::new(),
        };
        self.context.try_reply(&self.bot, reply).await.map(drop)
    }

    /// Replaces the text of a message, and removes its buttons.
    async fn edit(&self, message: &str, text: &str) -> Result<(), ChatError> {
        let text = self.context.fleet.redactor().redact(text).into_owned();
        let edited = self.bot.connector.edit(&self.answer.origin.place, message, &text, &[]).await;
        if let Err(error) = &edited {
            warn!(bot = self.bot.key, "cannot edit a message in a chat: {error}");
        }
        edited
    }

    /// Removes the reaction that acknowledges the message, and ends the answer.
    pub(super) async fn end(&self) -> Result<AnswerStep, StoreError> {
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

/// Returns whether a post or an edit may succeed later, also because the token can be replaced.
const fn may_succeed_later(error: &ChatError) -> bool {
    error.is_temporary() || matches!(error, ChatError::Revoked { .. })
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

//! Posts the answer to one message: the output of its job, a progress message that is edited in place, and the end.
//!
//! The output of a job is on the node that runs the job, so that node posts the answer. The posts depend only on the
//! lines of the output, and the store counts them. Therefore a restarted daemon continues with the next post.

use std::collections::HashSet;
use std::sync::Arc;

use cowhand_chat::{ChatError, Post, Posted};
use cowhand_core::chat::settings::PlatformChat;
use jiff::SignedDuration;
use tracing::warn;

use super::bot::Bot;
use super::context::ChatContext;
use super::job_output::OutputPosts;
use super::other_nodes::OUTPUT_GRACE;
use super::post_tries::PostTries;
use super::posts::post_key;
use cowhand_store::{AnsweredJob, ChatAnswer, OpenAnswer, StoreError};

/// Age above which an answer without a firing counts as not delivered.
const UNDELIVERED_AFTER: SignedDuration = SignedDuration::from_mins(1);
/// What this node does with an open answer now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AnswerTurn {
    /// Nothing. The answer has nothing to post yet, and later answers are posted before it.
    Waits,
    /// It checks whether the answer has to wait any longer. Later answers do not wait for it.
    Check,
    /// Nothing. Another node posts the answer, or it cannot be posted now. Later answers wait for it.
    Blocked,
    /// It posts the answer.
    Post,
}

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
    /// True if this node posts nothing more: the agent has no chat any more, or another node continues the answer.
    pub(super) must_stop: bool,
}

/// Returns what this node does with an open answer now. `stopped` are nodes whose daemons do not run.
pub(super) fn turn_of(context: &ChatContext, open: &OpenAnswer, stopped: &HashSet<String>) -> AnswerTurn {
    if context.chat_of(&open.agent, open.platform).is_none() {
        return AnswerTurn::Check;
    }
    if context.bot_of(&open.agent, open.platform).is_none() {
        return AnswerTurn::Blocked;
    }
    let node = context.node();
    // A node that does not run may need minutes to come back.
    let waits_for = |ran_on: &String| {
        if stopped.contains(ran_on) { AnswerTurn::Waits } else { AnswerTurn::Blocked }
    };
    match &open.job {
        AnsweredJob::NotDelivered => {
            let is_recent = context.now().duration_since(open.created_at) < UNDELIVERED_AFTER;
            if is_recent { AnswerTurn::Waits } else { AnswerTurn::Check }
        }
        AnsweredJob::Preparing if context.has_schedule(open) => AnswerTurn::Waits,
        AnsweredJob::Preparing => AnswerTurn::Check,
        AnsweredJob::Pending { .. } | AnsweredJob::Running { node: None } => AnswerTurn::Waits,
        AnsweredJob::Running { node: Some(ran_on) } if *ran_on != node => waits_for(ran_on),
        AnsweredJob::Ended { node: Some(ran_on), at } if *ran_on != node => {
            let is_recent = at.is_some_and(|at| context.now().duration_since(at) < OUTPUT_GRACE);
            if is_recent { waits_for(ran_on) } else { AnswerTurn::Post }
        }
        AnsweredJob::NotRun
        | AnsweredJob::Running { .. }
        | AnsweredJob::Ended { .. }
        | AnsweredJob::Removed => AnswerTurn::Post,
    }
}

/// Continues an answer as far as possible.
pub(super) async fn post_answer(context: &ChatContext, open: OpenAnswer) -> Result<AnswerStep, StoreError> {
    let (store, platform) = (context.store(), open.platform);
    let Some(mut chat) = context.chat_of(&open.agent, platform) else {
        return drop_answer(context, &open).await;
    };
    let Some(bot) = context.bot_of(&open.agent, platform) else { return Ok(AnswerStep::Later) };
    let Some(answer) = store.chat_answer(open.schedule, open.key.clone()).await? else {
        return Ok(AnswerStep::Done);
    };
    if let Some(output) = &answer.progress.output {
        chat.output.clone_from(output);
    }
    let mut posting = Posting { context, bot, chat, answer, must_stop: false };
    let (node, OpenAnswer { job, job_id, .. }) = (context.node(), &open);
    match (job, job_id) {
        (AnsweredJob::NotDelivered, _) => posting.drop_if_undelivered().await,
        (AnsweredJob::Preparing, _) => {
            if !context.has_schedule(&open) && context.is_removed_for_all(&open).await? {
                warn!(agent = %open.agent, "the schedule of a chat message was removed; the message is not run");
                store.cancel_firing(open.schedule, open.key.clone(), context.now()).await?;
            }
            Ok(AnswerStep::Later)
        }
        (AnsweredJob::NotRun, _) => posting.post_reason().await,
        (
            AnsweredJob::Running { node: Some(ran_on) } | AnsweredJob::Ended { node: Some(ran_on), .. },
            Some(id),
        ) if *ran_on == node => match OutputPosts::begin(&mut posting, id).await?.post().await? {
            AnswerStep::Done => posting.end().await,
            AnswerStep::Later => Ok(AnswerStep::Later),
        },
        (AnsweredJob::Pending { .. } | AnsweredJob::Running { .. }, _) => Ok(AnswerStep::Later),
        (AnsweredJob::Ended { node: Some(ran_on), .. }, Some(id)) => {
            posting.post_end_of_other_node(id, ran_on).await
        }
        (AnsweredJob::Ended { .. }, Some(id)) => posting.post_end_without_output(id, None).await,
        (AnsweredJob::Ended { .. } | AnsweredJob::Removed, _) => posting.end().await,
    }
}

/// Ends an answer of an agent that has no chat any more.
async fn drop_answer(context: &ChatContext, open: &OpenAnswer) -> Result<AnswerStep, StoreError> {
    if !context.is_removed_for_all(open).await? {
        return Ok(AnswerStep::Later);
    }
    let (agent, platform) = (&open.agent, open.platform);
    warn!(%agent, "the agent has no chat on {platform} any more; its open answers are dropped");
    context.store().end_chat_answer(open.schedule, open.key.clone(), context.now()).await?;
    Ok(AnswerStep::Done)
}

impl Posting<'_> {
    /// Ends an answer whose message will not be delivered any more. For example, the daemon was killed before the
    /// delivery, and the message was deleted meanwhile.
    async fn drop_if_undelivered(&self) -> Result<AnswerStep, StoreError> {
        let (store, answer) = (self.context.store(), &self.answer);
        let Some(inbox) = self.bot.inbox() else { return Ok(AnswerStep::Later) };
        if store.open_chat_message(inbox, answer.origin.message.clone()).await?.is_some() {
            return Ok(AnswerStep::Later);
        }
        if store.firing(answer.schedule, answer.key.clone()).await?.is_some() {
            return Ok(AnswerStep::Later);
        }
        warn!(agent = %answer.agent, message = answer.origin.message, "a chat message was not delivered");
        store.end_chat_answer(answer.schedule, answer.key.clone(), self.context.now()).await?;
        Ok(AnswerStep::Done)
    }

    /// Stores the progress of the answer. Sets `must_stop` if the answer has ended, or if another node continues it.
    pub(super) async fn save(&mut self) -> Result<(), StoreError> {
        let (node, answer) = (self.context.node(), &mut self.answer);
        let (key, progress) = (answer.key.clone(), answer.progress.clone());
        let before = answer.node.replace(node.clone());
        let saved =
            self.context.store().save_chat_answer(answer.schedule, key, progress, node, before.clone());
        match saved.await {
            Ok(is_saved) => self.must_stop |= !is_saved,
            Err(error) => {
                answer.node = before;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Reads the waiting note. It does not change any more after the progress of the answer was stored.
    pub(super) async fn read_waiting_note(&mut self) -> Result<(), StoreError> {
        let (schedule, key) = (self.answer.schedule, self.answer.key.clone());
        let stored = self.context.store().chat_answer(schedule, key).await?;
        self.answer.waiting_note = stored.and_then(|stored| stored.waiting_note);
        Ok(())
    }

    /// Stores the settings with which the answer is posted, unless they are stored.
    pub(super) fn keep_output(&mut self) {
        self.answer.progress.output.get_or_insert_with(|| self.chat.output.clone());
    }

    /// Notes that the platform has refused a part of the answer for good. [`Self::save`] stores it.
    pub(super) fn note_refusal(&mut self, reason: String) {
        self.answer.progress.note_refusal(reason, self.context.now());
    }

    pub(super) fn post_key(&self, part: &str) -> String {
        post_key(&[&self.answer.schedule.to_string(), self.answer.key.as_str(), part])
    }

    /// Returns whether the agent still has its chat. If it has none, nothing more is posted.
    pub(super) fn check_chat(&mut self) -> bool {
        if self.context.chat_of(&self.answer.agent, self.bot.platform).is_none() {
            self.must_stop = true;
        }
        !self.must_stop
    }

    /// Posts until the platform has accepted or refused the post, or until this node must stop. Returns the refusal.
    pub(super) async fn post_until_done(&mut self, post: &Post) -> Result<Posted, ChatError> {
        self.post_at_most(post, u32::MAX).await
    }

    /// Posts as [`Self::post_until_done`] does, but returns the error of the last one of `max` failed tries. Tries during
    /// a rate limit do not count.
    pub(super) async fn post_at_most(&mut self, post: &Post, max: u32) -> Result<Posted, ChatError> {
        let mut tries = PostTries::at_most(max);
        loop {
            let error = match self.bot.connector.post(post).await {
                Ok(posted) => return Ok(posted),
                Err(error) => error,
            };
            let channel = &post.place.channel;
            let Some(wait) = tries.wait_after(&error) else {
                warn!(bot = self.bot.key, channel, "a part of an answer is not posted: {error}");
                return Err(error);
            };
            if tries.is_first_failure() {
                warn!(
                    bot = self.bot.key,
                    channel, "cannot post a part of an answer now; it is tried again: {error}"
                );
            }
            tokio::time::sleep(wait).await;
            // A reload of the config may have replaced the bot, for example because of a new token.
            if let Some(bot) = self.context.bot_of(&self.answer.agent, self.bot.platform) {
                self.bot = bot;
            }
            if !self.check_chat() {
                return Err(error);
            }
        }
    }
}

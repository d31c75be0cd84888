//! The messages of a conversation that are not answered yet.

use cowhand_core::id::{AgentName, JobId};
use cowhand_core::job::JobStatus;
use cowhand_core::schedule::FiringOutcome;

use cowhand_store::{ChatAnswer, Store, StoreError};

/// Maximum number of messages that are read.
const MAX_LIVE_ANSWERS: u32 = 100;

/// An answer whose job has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LiveAnswer {
    pub(super) answer: ChatAnswer,
    pub(super) progress: LiveProgress,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LiveProgress {
    /// The firing has no job yet.
    Preparing,
    Pending(JobId),
    Running(JobId),
}

impl LiveAnswer {
    pub(super) const fn is_running(&self) -> bool {
        matches!(self.progress, LiveProgress::Running(_))
    }

    /// Returns whether this user caused the job.
    pub(super) fn is_of(&self, user: &str) -> bool {
        self.answer.origin.requester().id == user
    }
}

/// Returns the messages of a conversation whose jobs have not ended, the oldest first.
pub(super) async fn live_answers(
    store: &Store,
    agent: &AgentName,
    conversation: &str,
) -> Result<Vec<LiveAnswer>, StoreError> {
    let open = store.open_chat_answers(agent.clone(), conversation.to_owned(), MAX_LIVE_ANSWERS).await?;
    let mut live = Vec::new();
    for answer in open {
        if let Some(progress) = progress_of(store, &answer).await? {
            live.push(LiveAnswer { answer, progress });
        }
    }
    Ok(live)
}

/// Returns the progress of the job of an answer; none if the job has ended, or if the firing ran nothing.
pub(super) async fn progress_of(
    store: &Store,
    answer: &ChatAnswer,
) -> Result<Option<LiveProgress>, StoreError> {
    let Some(firing) = store.firing(answer.schedule, answer.key.clone()).await? else { return Ok(None) };
    if firing.outcome == FiringOutcome::Preparing {
        return Ok(Some(LiveProgress::Preparing));
    }
    Ok(firing.jobs.into_iter().find_map(|job| match job.status {
        JobStatus::Pending => Some(LiveProgress::Pending(job.id)),
        JobStatus::Running => Some(LiveProgress::Running(job.id)),
        JobStatus::Completed | JobStatus::Failed | JobStatus::Cancelled => None,
    }))
}

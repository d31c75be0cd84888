//! The actor or the reason of a job's cancellation.

use cowhand_core::actor::Actor;
use cowhand_core::event::Fact;
use cowhand_core::job::{CancelReason, Job, JobState, JobStatus};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Store, StoreError};

/// Request to cancel a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cancellation {
    pub asked_at: Timestamp,
    /// Requester; absent if cowhand itself cancelled the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Actor>,
    /// Reason why cowhand itself cancelled the job, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<CancelReason>,
}

impl Cancellation {
    /// Formats the actor or the reason: `jo`, or `cowhand itself: …`.
    pub fn in_words(&self) -> String {
        match (&self.by, self.reason) {
            (Some(by), _) => by.to_string(),
            (None, Some(reason)) => format!("cowhand itself: {}", reason.in_words()),
            (None, None) => "cowhand itself".to_owned(),
        }
    }
}

impl Store {
    /// Returns the cancellation of a job that is cancelled or is being stopped; `None` for other jobs. For a running
    /// job, requests from before its current attempt do not count.
    pub async fn cancellation_of(&self, job: &Job) -> Result<Option<Cancellation>, StoreError> {
        let since = match job.state() {
            JobState::Running { since } => *since,
            JobState::Ended { .. } if job.status() == JobStatus::Cancelled => Timestamp::MIN,
            JobState::Pending { .. } | JobState::Ended { .. } => return Ok(None),
        };
        let event = self.cancellation(job.id().clone()).await?.filter(|event| event.at >= since);
        Ok(event.map(|event| Cancellation {
            asked_at: event.at,
            by: event.by,
            reason: match event.fact {
                Fact::JobCancelling { reason } => reason,
                _ => None,
            },
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cancellations_by_cowhand_show_their_reason() {
        for (reason, expected) in [
            (CancelReason::DaemonStopped, "cowhand itself: the daemon was stopped"),
            (CancelReason::CancelPrevious, "cowhand itself: a later firing of its schedule took its place"),
            (CancelReason::ClaimLost, "cowhand itself: the claim of its work item was lost"),
        ] {
            let asked = Cancellation { asked_at: Timestamp::UNIX_EPOCH, by: None, reason: Some(reason) };
            assert!(asked.in_words().starts_with(expected), "{}", asked.in_words());
        }
    }
}

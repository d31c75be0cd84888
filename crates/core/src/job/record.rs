//! The record of a job: its fields in one flat form, which events, `jobs/ID.yaml`, the API and the command line share.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    ExitReason, FailReason, Job, JobError, JobState, JobStatus, JobUsage, Origin, OriginMessage, Outcome,
    Requeued, Termination, TriggerType,
};
use crate::id::{AgentName, JobId, ScheduleName};
use crate::work::WorkItem;

/// Fields of a job: first the fields that herdctl documents, in their order, then the fields that only cowhand has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobRecord {
    pub id: JobId,
    pub agent: AgentName,
    pub schedule: Option<ScheduleName>,
    pub trigger_type: TriggerType,
    pub status: JobStatus,
    pub exit_reason: Option<ExitReason>,
    pub session_id: Option<String>,
    pub forked_from: Option<JobId>,
    /// Creation time of the job.
    pub started_at: Timestamp,
    pub finished_at: Option<Timestamp>,
    pub duration_seconds: Option<u64>,
    pub prompt: Option<String>,
    pub summary: Option<String>,
    pub output_file: Option<String>,
    #[serde(default)]
    pub work_item: Option<WorkItem>,
    #[serde(default)]
    pub usage: Option<JobUsage>,
    #[serde(default)]
    pub retry_of: Option<JobId>,
    /// Number of attempts so far, including those that never began.
    #[serde(default)]
    pub attempt: u32,
    /// Number of attempts that reached a usage limit of their provider.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub parks: u32,
    /// Attempts that never began; absent if there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requeued: Option<Requeued>,
    /// Start of the first attempt.
    #[serde(default)]
    pub run_started_at: Option<Timestamp>,
    /// Start of the running attempt.
    #[serde(default)]
    pub attempt_started_at: Option<Timestamp>,
    /// Earliest start of the next attempt, while the job is pending.
    #[serde(default)]
    pub not_before: Option<Timestamp>,
    #[serde(default)]
    pub error: Option<JobError>,
    #[serde(default)]
    pub termination: Option<Termination>,
    /// Conversation in which the job answers, if it came from a chat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat: Option<String>,
    /// Chat message that caused the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<OriginMessage>,
    /// Reason why the text of the job is not trusted, so that the job runs in the strict sandbox; absent if the job is
    /// not confined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confined: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
const fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl From<Job> for JobRecord {
    fn from(job: Job) -> Self {
        let mut record = Self {
            status: job.status(),
            duration_seconds: job.duration_seconds(),
            output_file: Some(format!("{}.jsonl", job.id)),
            id: job.id,
            agent: job.agent,
            schedule: job.schedule,
            trigger_type: job.trigger_type,
            exit_reason: None,
            session_id: job.session_id,
            forked_from: None,
            started_at: job.created_at,
            finished_at: None,
            prompt: job.prompt,
            summary: None,
            work_item: job.work_item,
            usage: job.usage,
            retry_of: None,
            attempt: job.attempts,
            parks: job.parks,
            requeued: Some(job.requeued).filter(|requeued| !requeued.is_empty()),
            run_started_at: job.run_started_at,
            attempt_started_at: None,
            not_before: None,
            error: job.cancelled_after,
            termination: None,
            chat: job.chat,
            message: job.message,
            confined: job.confined,
        };
        match job.origin {
            Some(Origin::ForkOf(parent)) => record.forked_from = Some(parent),
            Some(Origin::RetryOf(parent)) => record.retry_of = Some(parent),
            None => {}
        }
        match job.state {
            JobState::Pending { not_before } => record.not_before = not_before,
            JobState::Running { since } => record.attempt_started_at = Some(since),
            JobState::Ended { at, outcome } => {
                record.finished_at = Some(at);
                record.exit_reason = Some(outcome.exit_reason());
                record.write_outcome(outcome);
            }
        }
        record
    }
}

impl JobRecord {
    fn write_outcome(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Completed { summary } => self.summary = summary,
            Outcome::Failed { error, summary, .. } => (self.error, self.summary) = (Some(error), summary),
            Outcome::Cancelled { how } => self.termination = Some(how),
        }
    }

    fn read_state(&mut self) -> Result<JobState, RecordError> {
        let needs = |field| RecordError { id: self.id.clone(), status: self.status, field };
        match self.status {
            JobStatus::Pending => Ok(JobState::Pending { not_before: self.not_before }),
            JobStatus::Running => {
                let since = self.attempt_started_at.ok_or_else(|| needs("attempt_started_at"))?;
                Ok(JobState::Running { since })
            }
            JobStatus::Completed | JobStatus::Failed | JobStatus::Cancelled => {
                let at = self.finished_at.ok_or_else(|| needs("finished_at"))?;
                let outcome = match (self.status, self.exit_reason) {
                    (JobStatus::Completed, Some(ExitReason::Success)) => {
                        Outcome::Completed { summary: self.summary.take() }
                    }
                    (JobStatus::Cancelled, Some(ExitReason::Cancelled)) => {
                        Outcome::Cancelled { how: self.termination.ok_or_else(|| needs("termination"))? }
                    }
                    (JobStatus::Failed, reason) => Outcome::Failed {
                        reason: match reason {
                            Some(ExitReason::Error) => FailReason::Error,
                            Some(ExitReason::Timeout) => FailReason::Timeout,
                            Some(ExitReason::MaxTurns) => FailReason::MaxTurns,
                            _ => return Err(needs("exit_reason")),
                        },
                        error: self.error.clone().ok_or_else(|| needs("error"))?,
                        summary: self.summary.take(),
                    },
                    _ => return Err(needs("exit_reason")),
                };
                Ok(JobState::Ended { at, outcome })
            }
        }
    }
}

impl TryFrom<JobRecord> for Job {
    type Error = RecordError;

    /// Converts a record. A record is rejected if a field that its status needs is missing, or if its exit reason does
    /// not match its status.
    fn try_from(mut record: JobRecord) -> Result<Self, RecordError> {
        let state = record.read_state()?;
        let is_cancelled = record.status == JobStatus::Cancelled;
        let origin = match (record.forked_from, record.retry_of) {
            (Some(parent), _) => Some(Origin::ForkOf(parent)),
            (None, Some(parent)) => Some(Origin::RetryOf(parent)),
            (None, None) => None,
        };
        Ok(Self {
            id: record.id,
            agent: record.agent,
            trigger_type: record.trigger_type,
            created_at: record.started_at,
            schedule: record.schedule,
            prompt: record.prompt,
            origin,
            session_id: record.session_id,
            attempts: record.attempt,
            parks: record.parks,
            requeued: record.requeued.unwrap_or_default(),
            run_started_at: record.run_started_at,
            usage: record.usage,
            work_item: record.work_item,
            chat: record.chat,
            message: record.message,
            confined: record.confined,
            cancelled_after: record.error.filter(|_| is_cancelled),
            state,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the record of {id} has the status {status}, which does not match its field `{field}`")]
pub struct RecordError {
    id: JobId,
    status: JobStatus,
    field: &'static str,
}

//! Jobs: durable pieces of work. Only the functions of this module change the state of a job.
//!
//! ```text
//!             start                end
//! pending ───────────▶ running ───────────▶ completed | failed | cancelled
//!  │   ▲                  │
//!  │   └──────────────────┘ retry, park or requeue
//!  └───────────────────────────────────────▶ cancelled
//!             cancel
//! ```
//!
//! An ended job rejects every change. Id, agent, trigger type and creation time never change: the fields are private
//! and no function here writes them.

mod closing;
mod message;
mod record;
mod requeue;
mod signature;
mod usage;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::{AgentName, JobId, ScheduleName};
use crate::moment::Moment;
use crate::policy::Retry;
use crate::word::written_as;
use crate::work::WorkItem;
pub use closing::{Closing, combine_with_report};
pub use message::OriginMessage;
pub use record::{JobRecord, RecordError};
pub use requeue::{MAX_REQUEUES, NotBegun, Requeued};
pub use signature::signature;
pub use usage::{JobUsage, MAX_TOKENS, MAX_USD, ModelUsage};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(into = "JobRecord", try_from = "JobRecord")]
pub struct Job {
    id: JobId,
    agent: AgentName,
    trigger_type: TriggerType,
    created_at: Timestamp,
    schedule: Option<ScheduleName>,
    prompt: Option<String>,
    origin: Option<Origin>,
    session_id: Option<String>,
    /// Number of attempts so far, including those that never began.
    attempts: u32,
    /// Number of attempts that reached a usage limit of their provider.
    parks: u32,
    /// Attempts that never began.
    requeued: Requeued,
    /// Start of the first attempt.
    run_started_at: Option<Timestamp>,
    /// Usage of all ended attempts.
    usage: Option<JobUsage>,
    /// Work item of the job, as the item was when it was claimed.
    work_item: Option<WorkItem>,
    chat: Option<String>,
    message: Option<OriginMessage>,
    confined: Option<String>,
    /// Error of the last attempt, if the job was cancelled while it waited for its next attempt.
    cancelled_after: Option<JobError>,
    state: JobState,
}

/// Initial data of a new job.
#[derive(Debug, Clone, PartialEq)]
pub struct NewJob {
    pub agent: AgentName,
    pub trigger_type: TriggerType,
    pub schedule: Option<ScheduleName>,
    pub prompt: Option<String>,
    pub origin: Option<Origin>,
    pub work_item: Option<WorkItem>,
    /// Conversation in which the job answers, for example `slack C1`.
    pub chat: Option<String>,
    /// Chat message that caused the job.
    pub message: Option<OriginMessage>,
    /// Reason why the text of the job is not trusted, so that the job runs in the strict sandbox; none if the job is
    /// not confined.
    pub confined: Option<String>,
    /// Earliest start.
    pub not_before: Option<Timestamp>,
}

/// The earlier job from which a job was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    ForkOf(JobId),
    RetryOf(JobId),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TriggerType {
    Manual,
    Schedule,
    Webhook,
    Chat,
    Discord,
    Slack,
    Web,
    Fork,
}

#[derive(Debug, Clone, PartialEq)]
pub enum JobState {
    /// Waits for its first or next attempt, which does not start before `not_before`, for example the end of a backoff.
    Pending {
        not_before: Option<Timestamp>,
    },
    Running {
        since: Timestamp,
    },
    Ended {
        at: Timestamp,
        outcome: Outcome,
    },
}

/// Outcome of a job or an attempt. Status and exit reason are derived from it, so they cannot contradict each other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    Completed { summary: Option<String> },
    Failed { reason: FailReason, error: JobError, summary: Option<String> },
    Cancelled { how: Termination },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailReason {
    Error,
    Timeout,
    MaxTurns,
}

/// Time at which an attempt ended. The attempt can be settled much later, and the wall clock can be set between its end
/// and its settlement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttemptEnd {
    /// Wall time of the end, by the clock as it was set at that time. It is never before the start of the attempt, and
    /// never after its settlement.
    pub recorded_at: Timestamp,
    /// The same end, by the clocks as they are set when the attempt is settled. Intervals, pauses and backoffs count
    /// from this time.
    pub counted_from: Moment,
}

/// Failure of a job, for people and for `retry.on`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobError {
    pub kind: ErrorKind,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The agent itself reported the failure.
    Reported,
    StartFailed,
    Exit,
    Signal,
    /// The attempt exceeded its time limit.
    Timeout,
    /// The attempt exceeded its limit of time without output.
    Idle,
    RateLimited,
    Budget,
    /// The end of the attempt is not known: its node or its process disappeared.
    Lost,
}

/// Way in which a cancelled job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Termination {
    /// The job had not started.
    NotStarted,
    /// An attempt had failed, and the job waited for the next one.
    BetweenAttempts,
    Graceful,
    Forced,
}

impl Termination {
    /// Returns a text for people.
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::NotStarted => "it had not started",
            Self::BetweenAttempts => "it waited for its next attempt",
            Self::Graceful => "it ended after the stop signal",
            Self::Forced => "it was killed",
        }
    }
}

/// Reason for which cowhand itself cancels a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CancelReason {
    /// The daemon was stopped, and the job did not finish in time.
    DaemonStopped,
    /// A later firing of its schedule replaces it (`overlap: cancel_previous`).
    CancelPrevious,
    /// The claim of its work item is lost.
    ClaimLost,
}

impl CancelReason {
    /// Returns a text for people.
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::DaemonStopped => "the daemon was stopped, and the job did not finish in time",
            Self::CancelPrevious => {
                "a later firing of its schedule took its place (`overlap: cancel_previous`)"
            }
            Self::ClaimLost => "the claim of its work item was lost, so somebody else may work on the item",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobStatus {
    Pending,
    Running,
    Completed,
    Failed,
    Cancelled,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExitReason {
    Success,
    Error,
    Timeout,
    Cancelled,
    MaxTurns,
}

impl Job {
    pub fn new(id: JobId, new: NewJob, now: Timestamp) -> Self {
        let NewJob {
            agent,
            trigger_type,
            schedule,
            prompt,
            origin,
            work_item,
            chat,
            message,
            confined,
            not_before,
        } = new;
        Self {
            id,
            agent,
            trigger_type,
            created_at: now,
            schedule,
            prompt,
            origin,
            session_id: None,
            attempts: 0,
            parks: 0,
            requeued: Requeued::default(),
            run_started_at: None,
            usage: None,
            work_item,
            chat,
            message,
            confined,
            cancelled_after: None,
            state: JobState::Pending { not_before },
        }
    }

    pub fn id(&self) -> &JobId {
        &self.id
    }

    pub fn agent(&self) -> &AgentName {
        &self.agent
    }

    pub fn created_at(&self) -> Timestamp {
        self.created_at
    }

    /// Returns the start of the first attempt.
    pub fn run_started_at(&self) -> Option<Timestamp> {
        self.run_started_at
    }

    pub fn schedule(&self) -> Option<&ScheduleName> {
        self.schedule.as_ref()
    }

    pub fn session_id(&self) -> Option<&str> {
        self.session_id.as_deref()
    }

    pub fn prompt(&self) -> Option<&str> {
        self.prompt.as_deref()
    }

    pub fn trigger_type(&self) -> TriggerType {
        self.trigger_type
    }

    pub fn origin(&self) -> Option<&Origin> {
        self.origin.as_ref()
    }

    pub fn work_item(&self) -> Option<&WorkItem> {
        self.work_item.as_ref()
    }

    /// Returns the conversation in which the job answers, if it came from a chat.
    pub fn chat(&self) -> Option<&str> {
        self.chat.as_deref()
    }

    /// Returns the chat message that caused the job; none if something else caused it.
    pub const fn message(&self) -> Option<&OriginMessage> {
        self.message.as_ref()
    }

    /// Returns the reason why the text of the job is not trusted; none if the job is not confined.
    pub fn confined(&self) -> Option<&str> {
        self.confined.as_deref()
    }

    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    pub fn parks(&self) -> u32 {
        self.parks
    }

    /// Returns the usage of all ended attempts.
    pub fn usage(&self) -> Option<&JobUsage> {
        self.usage.as_ref()
    }

    pub fn state(&self) -> &JobState {
        &self.state
    }

    pub fn status(&self) -> JobStatus {
        match &self.state {
            JobState::Pending { .. } => JobStatus::Pending,
            JobState::Running { .. } => JobStatus::Running,
            JobState::Ended { outcome, .. } => outcome.status(),
        }
    }

    /// Returns the time from the start of the first attempt to the end of the job, rounded to seconds; none if the job
    /// has not ended or never ran.
    pub fn duration_seconds(&self) -> Option<u64> {
        let JobState::Ended { at, .. } = self.state else { return None };
        let ran = at.duration_since(self.run_started_at?).as_secs_f64();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "rounded and never negative"
        )]
        Some(ran.max(0.0).round() as u64)
    }

    /// Replaces the earliest start of a waiting job with `until`, because the wall clock was set. Does nothing if the
    /// job has no earliest start.
    pub fn move_earliest_start(&mut self, until: Timestamp) {
        if let JobState::Pending { not_before: not_before @ Some(_) } = &mut self.state {
            *not_before = Some(until);
        }
    }

    /// Sets the earliest start of a job that waits for the calendar of its schedule, and returns whether this start has
    /// changed. Does nothing if the job does not wait for its first attempt.
    pub fn reschedule(&mut self, start: Option<Timestamp>) -> bool {
        match &mut self.state {
            JobState::Pending { not_before } if self.run_started_at.is_none() && *not_before != start => {
                *not_before = start;
                true
            }
            JobState::Pending { .. } | JobState::Running { .. } | JobState::Ended { .. } => false,
        }
    }

    /// Starts the next attempt.
    pub fn start(&mut self, now: Timestamp) -> Result<(), JobChangeRefused> {
        match self.state {
            JobState::Pending { not_before } if not_before.is_none_or(|at| at <= now) => {
                self.attempts += 1;
                self.run_started_at.get_or_insert(now);
                self.state = JobState::Running { since: now };
                Ok(())
            }
            JobState::Pending { not_before } => {
                Err(JobChangeRefused::BackingOff { until: not_before.unwrap_or(now) })
            }
            JobState::Running { .. } => Err(JobChangeRefused::AlreadyRunning),
            JobState::Ended { .. } => Err(self.terminal()),
        }
    }

    /// Records the session that the runtime reported.
    pub fn set_session(&mut self, session_id: String) -> Result<(), JobChangeRefused> {
        match self.state {
            JobState::Running { .. } => {
                self.session_id = Some(session_id);
                Ok(())
            }
            JobState::Pending { .. } => Err(JobChangeRefused::NotRunning),
            JobState::Ended { .. } => Err(self.terminal()),
        }
    }

    /// Settles the running attempt, which ended at `now`: the job ends with `outcome`, or, if the retry policy allows
    /// it, waits for another attempt.
    pub fn settle(
        &mut self,
        outcome: Outcome,
        retry: &Retry,
        now: Timestamp,
    ) -> Result<(), JobChangeRefused> {
        let end = self.attempt_end(None, now.into());
        self.settle_ended(outcome, retry, end)
    }

    /// Returns the end of the running attempt, which is settled at `now`. `ended` is the time at which it ended; none
    /// means that this time is not known, and then `now` counts as the end.
    pub fn attempt_end(&self, ended: Option<Moment>, now: Moment) -> AttemptEnd {
        let began = if let JobState::Running { since } = self.state { since } else { now.wall };
        let ended = ended.unwrap_or(now);
        AttemptEnd {
            recorded_at: ended.wall.max(began).min(now.wall),
            counted_from: ended.noticed_at(now, began),
        }
    }

    /// Settles the running attempt like [`Self::settle`], with an end in the past. A backoff counts from that end.
    pub fn settle_ended(
        &mut self,
        outcome: Outcome,
        retry: &Retry,
        end: AttemptEnd,
    ) -> Result<(), JobChangeRefused> {
        let wait = match outcome {
            // Attempts that reached a limit of their provider, or never began, do not count for the retry policy.
            Outcome::Failed { .. } => {
                let begun = self.attempts.saturating_sub(self.parks).saturating_sub(self.requeued.total);
                retry.wait_after(begun, &outcome.retry_words())
            }
            Outcome::Completed { .. } | Outcome::Cancelled { .. } => None,
        };
        match wait.and_then(|wait| end.counted_from.wall.checked_add(wait).ok()) {
            Some(not_before) => self.back_off(not_before)?,
            None => self.end(outcome, end.recorded_at)?,
        }
        self.requeued.begun();
        Ok(())
    }

    /// Parks the job because the running attempt reached a usage limit. The job waits for its provider and then
    /// continues its session. It has no `not_before`, so a fallback may continue it immediately.
    pub fn park(&mut self) -> Result<(), JobChangeRefused> {
        match self.state {
            JobState::Running { .. } => {
                self.state = JobState::Pending { not_before: None };
                self.parks += 1;
                self.requeued.begun();
                Ok(())
            }
            JobState::Pending { .. } => Err(JobChangeRefused::NotRunning),
            JobState::Ended { .. } => Err(self.terminal()),
        }
    }

    /// Adds the usage of the running attempt, or usage of an earlier attempt that becomes known late.
    pub fn spend(&mut self, usage: &JobUsage) -> Result<(), JobChangeRefused> {
        match self.state {
            JobState::Running { .. } | JobState::Pending { .. } => {
                self.usage.get_or_insert_default().add(usage);
                Ok(())
            }
            JobState::Ended { .. } => Err(self.terminal()),
        }
    }

    fn back_off(&mut self, not_before: Timestamp) -> Result<(), JobChangeRefused> {
        match self.state {
            JobState::Running { .. } => {
                self.state = JobState::Pending { not_before: Some(not_before) };
                Ok(())
            }
            JobState::Pending { .. } => Err(JobChangeRefused::NotRunning),
            JobState::Ended { .. } => Err(self.terminal()),
        }
    }

    /// Ends the job. A pending job can only be cancelled.
    fn end(&mut self, outcome: Outcome, now: Timestamp) -> Result<(), JobChangeRefused> {
        match (&self.state, &outcome) {
            (JobState::Ended { .. }, _) => Err(self.terminal()),
            (JobState::Pending { .. }, Outcome::Completed { .. } | Outcome::Failed { .. }) => {
                Err(JobChangeRefused::NotRunning)
            }
            (JobState::Running { .. }, _) | (JobState::Pending { .. }, Outcome::Cancelled { .. }) => {
                self.state = JobState::Ended { at: now.max(self.created_at), outcome };
                Ok(())
            }
        }
    }

    /// Cancels the job. For a running job, the caller does this after the processes of the job have ended.
    pub fn cancel(&mut self, how: Termination, now: Timestamp) -> Result<(), JobChangeRefused> {
        self.end(Outcome::Cancelled { how }, now)
    }

    /// Cancels a job that waits for its next attempt, after attempt `failed` failed with `error`.
    pub fn cancel_between(
        &mut self,
        failed: u32,
        error: &JobError,
        now: Timestamp,
    ) -> Result<(), JobChangeRefused> {
        self.cancel(Termination::BetweenAttempts, now)?;
        let next = self.attempts.saturating_add(1);
        let message = format!("it waited for attempt {next}; attempt {failed} failed: {}", error.message);
        self.cancelled_after = Some(JobError { message, ..error.clone() });
        Ok(())
    }

    fn terminal(&self) -> JobChangeRefused {
        JobChangeRefused::Terminal { id: self.id.clone(), status: self.status() }
    }
}

impl Outcome {
    pub fn lost(message: impl Into<String>) -> Self {
        Self::Failed {
            reason: FailReason::Error,
            error: JobError { kind: ErrorKind::Lost, message: message.into() },
            summary: None,
        }
    }

    /// Checks whether the attempt failed because it reached a usage limit of its provider.
    pub fn is_limit(&self) -> bool {
        matches!(self, Self::Failed { error, .. } if error.kind == ErrorKind::RateLimited)
    }

    pub const fn status(&self) -> JobStatus {
        match self {
            Self::Completed { .. } => JobStatus::Completed,
            Self::Failed { .. } => JobStatus::Failed,
            Self::Cancelled { .. } => JobStatus::Cancelled,
        }
    }

    pub const fn exit_reason(&self) -> ExitReason {
        match self {
            Self::Completed { .. } => ExitReason::Success,
            Self::Failed { reason: FailReason::Error, .. } => ExitReason::Error,
            Self::Failed { reason: FailReason::Timeout, .. } => ExitReason::Timeout,
            Self::Failed { reason: FailReason::MaxTurns, .. } => ExitReason::MaxTurns,
            Self::Cancelled { .. } => ExitReason::Cancelled,
        }
    }

    /// Returns the names by which `retry.on` can select this outcome: the exit reason and the error kind.
    pub fn retry_words(&self) -> Vec<&'static str> {
        let mut words = vec![self.exit_reason().as_str()];
        if let Self::Failed { error, .. } = self {
            words.push(error.kind.as_str());
        }
        words
    }
}

written_as! {
    TriggerType {
        Manual = "manual", Schedule = "schedule", Webhook = "webhook", Chat = "chat", Discord = "discord",
        Slack = "slack", Web = "web", Fork = "fork",
    }
    JobStatus {
        Pending = "pending", Running = "running", Completed = "completed", Failed = "failed",
        Cancelled = "cancelled",
    }
    ExitReason {
        Success = "success", Error = "error", Timeout = "timeout", Cancelled = "cancelled", MaxTurns = "max_turns",
    }
    ErrorKind {
        Reported = "reported", StartFailed = "start_failed", Exit = "exit", Signal = "signal",
        Timeout = "timeout", Idle = "idle",
        RateLimited = "rate_limited", Budget = "budget", Lost = "lost",
    }
    Termination { NotStarted = "not_started", BetweenAttempts = "between_attempts", Graceful = "graceful", Forced = "forced" }
}

/// Reason why a change was rejected. The job is unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JobChangeRefused {
    #[error("{id} is {status} and never changes again; fork or retry it to get a new job")]
    Terminal { id: JobId, status: JobStatus },
    #[error("the job is not running")]
    NotRunning,
    #[error("the job is running already")]
    AlreadyRunning,
    #[error("the job waits until {until} before its next attempt")]
    BackingOff { until: Timestamp },
}

#[cfg(test)]
mod tests;

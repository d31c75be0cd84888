//! Jobs: one durable piece of work each, and the only functions that move one from state to state.
//!
//! ```text
//!            start                    end
//! pending ──────────▶ running ──────────────────▶ completed | failed | cancelled
//!    ▲  │                │                                      ▲
//!    │  │                └── retry: pending until the backoff ──┐
//!    │  └── cancel ──────────────────────────────────────────── │ ─▶ cancelled
//!    └──────────────────────────────────────────────────────────┘
//! ```
//!
//! A terminal job refuses every change. Id, agent, trigger type and creation time never change at all: they are
//! private and nothing here writes them.

mod closing;
mod record;
mod requeue;
mod signature;
mod usage;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::{AgentName, JobId, ScheduleName};
use crate::policy::Retry;
use crate::word::written_as;
use crate::work::WorkItem;
pub use closing::{Closing, of_work};
pub use record::{JobRecord, RecordError};
pub use requeue::{MAX_REQUEUES, NotBegun, Requeued};
pub use signature::signature;
pub use usage::{JobUsage, MOST_TOKENS, MOST_USD, ModelUsage};

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
    /// Attempts started so far.
    attempts: u32,
    /// How many of them met a limit of their provider.
    parks: u32,
    /// Those that never began.
    requeued: Requeued,
    /// When the first attempt started.
    run_started_at: Option<Timestamp>,
    /// Of all attempts so far.
    usage: Option<JobUsage>,
    /// What it works on, as it was when it was claimed.
    work_item: Option<WorkItem>,
    chat: Option<String>,
    confined: Option<String>,
    /// Of a job that was cancelled between two attempts: that it waited, and how the attempt before had failed.
    cancelled_after: Option<JobError>,
    state: JobState,
}

/// What a new job begins with; the rest follows from its life.
#[derive(Debug, Clone, PartialEq)]
pub struct NewJob {
    pub agent: AgentName,
    pub trigger_type: TriggerType,
    pub schedule: Option<ScheduleName>,
    pub prompt: Option<String>,
    pub origin: Option<Origin>,
    pub work_item: Option<WorkItem>,
    /// The conversation that it answers in, for example `slack C1`.
    pub chat: Option<String>,
    /// Why it runs in the strict sandbox, if it does: whose words it was given.
    pub confined: Option<String>,
    /// It does not start before this.
    pub not_before: Option<Timestamp>,
}

/// The earlier job that a job came from.
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
    /// Waits for a place, or, after a failed attempt, for its backoff to pass.
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

/// How a job or an attempt ended. Status and exit reason follow from it, so they cannot contradict each other.
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

/// What went wrong, for a person and for `retry.on`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobError {
    pub kind: ErrorKind,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The agent itself said so.
    Reported,
    StartFailed,
    Exit,
    Signal,
    /// It took longer than it may.
    Timeout,
    /// It was silent for longer than it may.
    Idle,
    RateLimited,
    Budget,
    /// Nobody knows how it ended: its node or its process was gone.
    Lost,
}

/// How a cancelled job was brought to an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Termination {
    /// It had not begun to run.
    NotStarted,
    /// An attempt had failed, and it waited for the next one.
    BetweenAttempts,
    Graceful,
    Forced,
}

impl Termination {
    /// For people.
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::NotStarted => "it had not started",
            Self::BetweenAttempts => "it waited for its next attempt",
            Self::Graceful => "it ended when it was asked to",
            Self::Forced => "it was killed",
        }
    }
}

/// Why cowhand itself cancels a job that nobody asked to cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CancelReason {
    /// The daemon was stopped, and the job did not finish in time.
    DaemonStopped,
    /// A later firing of its schedule takes its place (`overlap: cancel_previous`).
    CancelPrevious,
    /// Its claim on its work item is lost.
    ClaimLost,
}

impl CancelReason {
    /// For people.
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::DaemonStopped => "the daemon was stopped, and did not wait longer for it",
            Self::CancelPrevious => {
                "a later firing of its schedule took its place (`overlap: cancel_previous`)"
            }
            Self::ClaimLost => "its claim on its work item was lost, so somebody else may work on that",
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
        let NewJob { agent, trigger_type, schedule, prompt, origin, work_item, chat, confined, not_before } =
            new;
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

    /// When the first attempt started.
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

    /// The conversation that it answers in, if it is of a chat.
    pub fn chat(&self) -> Option<&str> {
        self.chat.as_deref()
    }

    /// Why its words are not trusted, if they are not.
    pub fn confined(&self) -> Option<&str> {
        self.confined.as_deref()
    }

    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    pub fn parks(&self) -> u32 {
        self.parks
    }

    /// Of all attempts that have ended.
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

    /// Whole seconds of running, known once the job has ended. A job that never ran has none.
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

    /// The end of its backoff has another wall time now, because the clock was set.
    pub fn backs_off_until(&mut self, until: Timestamp) {
        if let JobState::Pending { not_before: not_before @ Some(_) } = &mut self.state {
            *not_before = Some(until);
        }
    }

    /// The next attempt begins.
    pub fn start(&mut self, now: Timestamp) -> Result<(), Refused> {
        match self.state {
            JobState::Pending { not_before } if not_before.is_none_or(|at| at <= now) => {
                self.attempts += 1;
                self.run_started_at.get_or_insert(now);
                self.state = JobState::Running { since: now };
                Ok(())
            }
            JobState::Pending { not_before } => Err(Refused::BackingOff { until: not_before.unwrap_or(now) }),
            JobState::Running { .. } => Err(Refused::AlreadyRunning),
            JobState::Ended { .. } => Err(self.terminal()),
        }
    }

    /// The runtime told which session this is.
    pub fn set_session(&mut self, session_id: String) -> Result<(), Refused> {
        match self.state {
            JobState::Running { .. } => {
                self.session_id = Some(session_id);
                Ok(())
            }
            JobState::Pending { .. } => Err(Refused::NotRunning),
            JobState::Ended { .. } => Err(self.terminal()),
        }
    }

    /// The running attempt is over: the job ends with it, or waits for another one if the retry policy says so.
    pub fn settle(&mut self, outcome: Outcome, retry: &Retry, now: Timestamp) -> Result<(), Refused> {
        self.settle_ended(outcome, retry, now, now)
    }

    /// As above, of an attempt that was over earlier. A clock that was set since does not let it end before it began.
    pub fn settle_ended(
        &mut self,
        outcome: Outcome,
        retry: &Retry,
        ended: Timestamp,
        now: Timestamp,
    ) -> Result<(), Refused> {
        let since = if let JobState::Running { since } = self.state { since } else { now };
        let ended = ended.max(since).min(now);
        let wait = match outcome {
            // To be sent away by a provider is not held against it, nor what never began.
            Outcome::Failed { .. } => {
                let begun = self.attempts.saturating_sub(self.parks).saturating_sub(self.requeued.in_all);
                retry.wait_after(begun, &outcome.retry_words())
            }
            Outcome::Completed { .. } | Outcome::Cancelled { .. } => None,
        };
        match wait.and_then(|wait| now.checked_add(wait).ok()) {
            Some(not_before) => self.back_off(not_before)?,
            None => self.end(outcome, ended)?,
        }
        self.requeued.begun();
        Ok(())
    }

    /// The running attempt met a limit: the job waits for its provider and then goes on with its session. It is the
    /// provider that holds it, so whatever stands in for that may take it up at once.
    pub fn park(&mut self) -> Result<(), Refused> {
        match self.state {
            JobState::Running { .. } => {
                self.state = JobState::Pending { not_before: None };
                self.parks += 1;
                self.requeued.begun();
                Ok(())
            }
            JobState::Pending { .. } => Err(Refused::NotRunning),
            JobState::Ended { .. } => Err(self.terminal()),
        }
    }

    /// What the running attempt cost.
    pub fn spend(&mut self, usage: &JobUsage) -> Result<(), Refused> {
        match self.state {
            JobState::Running { .. } => {
                self.usage.get_or_insert_default().add(usage);
                Ok(())
            }
            JobState::Pending { .. } => Err(Refused::NotRunning),
            JobState::Ended { .. } => Err(self.terminal()),
        }
    }

    fn back_off(&mut self, not_before: Timestamp) -> Result<(), Refused> {
        match self.state {
            JobState::Running { .. } => {
                self.state = JobState::Pending { not_before: Some(not_before) };
                Ok(())
            }
            JobState::Pending { .. } => Err(Refused::NotRunning),
            JobState::Ended { .. } => Err(self.terminal()),
        }
    }

    /// The job is over. Only a cancellation can end one that has not begun.
    fn end(&mut self, outcome: Outcome, now: Timestamp) -> Result<(), Refused> {
        match (&self.state, &outcome) {
            (JobState::Ended { .. }, _) => Err(self.terminal()),
            (JobState::Pending { .. }, Outcome::Completed { .. } | Outcome::Failed { .. }) => {
                Err(Refused::NotRunning)
            }
            (JobState::Running { .. }, _) | (JobState::Pending { .. }, Outcome::Cancelled { .. }) => {
                self.state = JobState::Ended { at: now.max(self.created_at), outcome };
                Ok(())
            }
        }
    }

    /// Somebody asked for it to stop. A running job is cancelled once its processes are gone.
    pub fn cancel(&mut self, how: Termination, now: Timestamp) -> Result<(), Refused> {
        self.end(Outcome::Cancelled { how }, now)
    }

    /// The same of a job that waits for its next attempt, after this one failed with this error.
    pub fn cancel_between(&mut self, failed: u32, error: &JobError, now: Timestamp) -> Result<(), Refused> {
        self.cancel(Termination::BetweenAttempts, now)?;
        let next = self.attempts.saturating_add(1);
        let message = format!("it waited for attempt {next}; attempt {failed} failed: {}", error.message);
        self.cancelled_after = Some(JobError { message, ..error.clone() });
        Ok(())
    }

    fn terminal(&self) -> Refused {
        Refused::Terminal { id: self.id.clone(), status: self.status() }
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

    /// Its provider has sent it away for now.
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

    /// The words that `retry.on` can name: the exit reason and the error kind.
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

/// Why a change was not made; the job is as it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
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

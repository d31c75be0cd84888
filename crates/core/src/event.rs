//! Events: recorded facts in the past tense, numbered by one growing sequence.

mod job;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::actor::Actor;
use crate::ask::{AskId, AskStatus};
use crate::hook::HookKind;
use crate::id::{AgentName, JobId, ScheduleId, ScheduleName, TokenName};
use crate::job::{CancelReason, ErrorKind, ExitReason, Job, JobRecord, JobState, Outcome, Termination};
use crate::report::ReportedOutcome;
use crate::retention::Limit;
use crate::schedule::{DisabledBy, SkipReason};
use crate::server::Scope;
use crate::trigger::FiringKey;
use crate::work::{WorkItemId, WorkOutcome};

/// A fact with its place in the sequence; `seq` is the cursor of everyone who follows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    pub seq: i64,
    pub at: Timestamp,
    /// None for what concerns the whole fleet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<ScheduleName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// Whoever asked for it; none if the fleet did it by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<Actor>,
    #[serde(flatten)]
    pub fact: Fact,
    /// The job as it was then, in events of type created, forked, started, completed, failed and cancelled. Not there once
    /// the job is pruned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_record: Option<Box<JobRecord>>,
    /// The job that it was forked from, as it is now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original_job_record: Option<Box<JobRecord>>,
}

/// A line that a job said: live only, so it has no number in the log. Job and line together are its place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobOutput {
    #[serde(rename = "type")]
    pub kind: OutputKind,
    pub at: Timestamp,
    pub agent: AgentName,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<ScheduleName>,
    pub job: JobId,
    /// Counted from 1 over all attempts of the job.
    pub line: u64,
    /// `system`, `assistant`, `tool_use`, `tool_result` or `error`.
    pub output_type: String,
    /// The message, as it stands in the job's JSONL.
    pub output: Value,
}

/// The type of a [`JobOutput`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum OutputKind {
    #[default]
    #[serde(rename = "job:output")]
    JobOutput,
}

impl Event {
    pub fn schedule_id(&self) -> Option<ScheduleId> {
        Some(ScheduleId::of(self.agent.as_ref()?, self.schedule.as_ref()?))
    }

    /// `agent` or `agent/schedule`; nothing for what concerns the whole fleet.
    pub fn whose(&self) -> String {
        match (&self.agent, &self.schedule) {
            (Some(agent), Some(schedule)) => format!("{agent}/{schedule}"),
            (Some(agent), None) => agent.to_string(),
            (None, _) => String::new(),
        }
    }
}

/// What happened. Every state change writes exactly one of these in its own transaction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type")]
pub enum Fact {
    #[serde(rename = "job:created")]
    JobCreated,
    #[serde(rename = "job:forked")]
    JobForked { forked_from: JobId },
    #[serde(rename = "job:started")]
    JobStarted { attempt: u32, node: String },
    /// The runtime told its own name for the conversation.
    #[serde(rename = "job:session")]
    JobSession { session_id: String },
    /// An attempt was claimed but never began; the job waits again.
    #[serde(rename = "job:requeued")]
    JobRequeued {
        attempt: u32,
        /// Not there if the daemon ended before it could start it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// An attempt failed and another will follow.
    #[serde(rename = "job:retrying")]
    JobRetrying { attempt: u32, not_before: Timestamp, kind: ErrorKind, message: String },
    /// An attempt met a limit of its provider; the job goes on with its session when that ends.
    #[serde(rename = "job:parked")]
    JobParked { attempt: u32, provider: String, until: Timestamp, message: String },
    /// Its processes are asked to end.
    #[serde(rename = "job:cancelling")]
    JobCancelling {
        /// Why cowhand itself does it; not there if somebody asked for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<CancelReason>,
    },
    #[serde(rename = "job:completed")]
    JobCompleted { exit_reason: ExitReason, duration_seconds: u64 },
    #[serde(rename = "job:failed")]
    JobFailed { exit_reason: ExitReason, duration_seconds: u64, kind: ErrorKind, message: String },
    #[serde(rename = "job:cancelled")]
    JobCancelled { termination: Termination, duration_seconds: u64 },
    /// Somebody deleted the job; its files go with this event, on every node that has some.
    #[serde(rename = "job:deleted")]
    JobDeleted {
        /// How many attempts may have left a folder.
        attempts: u32,
    },
    /// The job was beyond a limit of retention, and is no more; its files go with this event, on every node that has some.
    #[serde(rename = "job:pruned")]
    JobPruned {
        /// How many attempts may have left a folder.
        attempts: u32,
        /// Which one. None if somebody deleted the job, as an earlier version recorded that.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<Limit>,
    },
    /// New, or with a changed trigger.
    #[serde(rename = "schedule:armed")]
    ScheduleArmed,
    /// What was done under its former name, `AGENT/SCHEDULE`, counts as done by it.
    #[serde(rename = "schedule:adopted")]
    ScheduleAdopted { former: String },
    /// It fires; what it runs for is being found out.
    #[serde(rename = "schedule:preparing")]
    SchedulePreparing { key: FiringKey, due: Timestamp },
    #[serde(rename = "schedule:fired")]
    ScheduleFired { key: FiringKey, due: Timestamp },
    #[serde(rename = "schedule:skipped")]
    ScheduleSkipped { key: FiringKey, due: Timestamp, reason: SkipReason },
    #[serde(rename = "schedule:missed")]
    ScheduleMissed { key: FiringKey, due: Timestamp },
    #[serde(rename = "schedule:coalesced")]
    ScheduleCoalesced { key: FiringKey, due: Timestamp },
    /// Due, but held back; it fires when the reason goes away.
    #[serde(rename = "schedule:waiting")]
    ScheduleWaiting { due: Timestamp, reason: SkipReason },
    /// Something keeps it from going on that may pass; it is tried again.
    #[serde(rename = "schedule:delayed")]
    ScheduleDelayed { message: String },
    #[serde(rename = "schedule:enabled")]
    ScheduleEnabled,
    #[serde(rename = "schedule:disabled")]
    ScheduleDisabled { why: DisabledBy },
    /// Its jobs keep failing the same way, or spend on nothing: it fires no more until then, or until a person says so.
    #[serde(rename = "schedule:paused")]
    SchedulePaused { reason: String, until: Timestamp },
    /// Its pause is over.
    #[serde(rename = "schedule:resumed")]
    ScheduleResumed,
    /// Its `end_at` has passed.
    #[serde(rename = "schedule:finished")]
    ScheduleFinished,
    /// Its trigger cannot go on until a person mends something.
    #[serde(rename = "schedule:error")]
    ScheduleError { reason: String },
    /// Somebody wants the agent to begin anew.
    #[serde(rename = "agent:cleared")]
    AgentCleared,
    /// The config was read again.
    #[serde(rename = "fleet:reloaded")]
    FleetReloaded { agents: usize, schedules: usize },
    /// The config on disk has mistakes; the one before it stays in force.
    #[serde(rename = "fleet:config_refused")]
    FleetConfigRefused,
    /// What another program did before was imported, at the first start.
    #[serde(rename = "fleet:imported")]
    FleetImported {
        /// `herdctl`.
        source: String,
        /// Schedules that stay disabled.
        disabled: usize,
        /// Schedules whose last run is known.
        last_runs: usize,
        sessions: usize,
        jobs: usize,
    },
    /// The daemon is asked to end.
    #[serde(rename = "fleet:stopping")]
    FleetStopping { keep_agents: bool },
    /// The wall clock of a node was set, by so many seconds: forward, or back if negative.
    #[serde(rename = "clock:stepped")]
    ClockStepped { node: String, seconds: i64 },
    /// Somebody said that it takes jobs again.
    #[serde(rename = "provider:unparked")]
    ProviderUnparked { provider: String },
    #[serde(rename = "token:created")]
    TokenCreated { name: TokenName, scope: Scope },
    #[serde(rename = "token:revoked")]
    TokenRevoked { name: TokenName },
    #[serde(rename = "work:claimed")]
    WorkClaimed { item: WorkItemId },
    /// The source was told how it ended.
    #[serde(rename = "work:reported")]
    WorkReported { item: WorkItemId, outcome: WorkOutcome },
    /// The item is back with the others.
    #[serde(rename = "work:released")]
    WorkReleased {
        item: WorkItemId,
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The item is gone or somebody else's: there was nothing left to tell.
    #[serde(rename = "work:dropped")]
    WorkDropped { item: WorkItemId, message: String },
    /// The source could not be told; it will be, again and again.
    #[serde(rename = "work:delayed")]
    WorkDelayed { item: WorkItemId, message: String },
    /// An agent waits for a person: about a tool, or with a question.
    #[serde(rename = "ask:made")]
    AskMade { ask: AskId, about: String },
    #[serde(rename = "ask:answered")]
    AskAnswered { ask: AskId, status: AskStatus },
    /// Nobody answered in time, or before the attempt was over.
    #[serde(rename = "ask:expired")]
    AskExpired { ask: AskId, status: AskStatus },
    /// A rule denied a tool, so nobody was asked; once for each tool and rule of a job, however often it tries.
    #[serde(rename = "ask:denied")]
    AskDenied { tool: String, rule: String },
    /// An agent said what its work came to; a later report of the same attempt takes its place.
    #[serde(rename = "job:reported")]
    JobReported { attempt: u32, outcome: ReportedOutcome },
    /// Another job asked for this one; it is so far along the chain.
    #[serde(rename = "job:followup")]
    JobFollowup { follows: JobId, number: u32 },
    /// A job asked for another, and did not get it.
    #[serde(rename = "followup:refused")]
    FollowupRefused { message: String },
    /// A process of a job wanted more over the owner's socket than the token of that job allows, or a process of another
    /// user wanted anything there; once for each endpoint.
    #[serde(rename = "access:refused")]
    AccessRefused { method: String, endpoint: String },
    /// Something that the config wants done after a job is done.
    #[serde(rename = "hook:completed")]
    HookCompleted {
        number: u32,
        kind: HookKind,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
    #[serde(rename = "hook:failed")]
    HookFailed {
        number: u32,
        kind: HookKind,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        message: String,
    },
    #[serde(rename = "hook:skipped")]
    HookSkipped {
        number: u32,
        kind: HookKind,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        message: String,
    },
}

impl Fact {
    /// What the last attempt of a job came to.
    pub fn of_settled(job: &Job, outcome: &Outcome) -> Self {
        let exit_reason = outcome.exit_reason();
        let duration_seconds = job.duration_seconds().unwrap_or_default();
        match (job.state(), outcome) {
            (_, Outcome::Cancelled { how }) => Self::JobCancelled { termination: *how, duration_seconds },
            (_, Outcome::Completed { .. }) => Self::JobCompleted { exit_reason, duration_seconds },
            (JobState::Pending { not_before: Some(not_before) }, Outcome::Failed { error, .. }) => {
                Self::JobRetrying {
                    attempt: job.attempts(),
                    not_before: *not_before,
                    kind: error.kind,
                    message: error.message.clone(),
                }
            }
            (_, Outcome::Failed { error, .. }) => Self::JobFailed {
                exit_reason,
                duration_seconds,
                kind: error.kind,
                message: error.message.clone(),
            },
        }
    }

    /// The word under `type`.
    pub const fn type_name(&self) -> &'static str {
        match self {
            Self::JobCreated => "job:created",
            Self::JobForked { .. } => "job:forked",
            Self::JobStarted { .. } => "job:started",
            Self::JobSession { .. } => "job:session",
            Self::JobRequeued { .. } => "job:requeued",
            Self::JobRetrying { .. } => "job:retrying",
            Self::JobParked { .. } => "job:parked",
            Self::JobCancelling { .. } => "job:cancelling",
            Self::JobCompleted { .. } => "job:completed",
            Self::JobFailed { .. } => "job:failed",
            Self::JobCancelled { .. } => "job:cancelled",
            Self::JobDeleted { .. } => "job:deleted",
            Self::JobPruned { .. } => "job:pruned",
            Self::ScheduleArmed => "schedule:armed",
            Self::ScheduleAdopted { .. } => "schedule:adopted",
            Self::SchedulePreparing { .. } => "schedule:preparing",
            Self::ScheduleFired { .. } => "schedule:fired",
            Self::ScheduleSkipped { .. } => "schedule:skipped",
            Self::ScheduleMissed { .. } => "schedule:missed",
            Self::ScheduleCoalesced { .. } => "schedule:coalesced",
            Self::ScheduleWaiting { .. } => "schedule:waiting",
            Self::ScheduleDelayed { .. } => "schedule:delayed",
            Self::ScheduleEnabled => "schedule:enabled",
            Self::ScheduleDisabled { .. } => "schedule:disabled",
            Self::SchedulePaused { .. } => "schedule:paused",
            Self::ScheduleResumed => "schedule:resumed",
            Self::ScheduleFinished => "schedule:finished",
            Self::ScheduleError { .. } => "schedule:error",
            Self::AgentCleared => "agent:cleared",
            Self::FleetReloaded { .. } => "fleet:reloaded",
            Self::FleetConfigRefused => "fleet:config_refused",
            Self::FleetImported { .. } => "fleet:imported",
            Self::FleetStopping { .. } => "fleet:stopping",
            Self::ClockStepped { .. } => "clock:stepped",
            Self::ProviderUnparked { .. } => "provider:unparked",
            Self::TokenCreated { .. } => "token:created",
            Self::TokenRevoked { .. } => "token:revoked",
            Self::WorkClaimed { .. } => "work:claimed",
            Self::WorkReported { .. } => "work:reported",
            Self::WorkReleased { .. } => "work:released",
            Self::WorkDropped { .. } => "work:dropped",
            Self::WorkDelayed { .. } => "work:delayed",
            Self::JobReported { .. } => "job:reported",
            Self::JobFollowup { .. } => "job:followup",
            Self::FollowupRefused { .. } => "followup:refused",
            Self::AskMade { .. } => "ask:made",
            Self::AskAnswered { .. } => "ask:answered",
            Self::AskExpired { .. } => "ask:expired",
            Self::AskDenied { .. } => "ask:denied",
            Self::AccessRefused { .. } => "access:refused",
            Self::HookCompleted { .. } => "hook:completed",
            Self::HookFailed { .. } => "hook:failed",
            Self::HookSkipped { .. } => "hook:skipped",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_flat_shape() {
        let event = Event {
            seq: 7,
            at: "2026-01-01T00:00:00Z".parse().unwrap(),
            agent: Some("coder".parse().unwrap()),
            schedule: Some("nightly".parse().unwrap()),
            job: None,
            by: None,
            fact: Fact::ScheduleSkipped {
                key: FiringKey::stored("cron:2026-01-01T00:00:00Z".into()),
                due: "2026-01-01T00:00:00Z".parse().unwrap(),
                reason: SkipReason::AlreadyRunning,
            },
            job_record: None,
            original_job_record: None,
        };
        let json = serde_json::to_string(&event).unwrap();
        let expected = r#"{"seq":7,"at":"2026-01-01T00:00:00Z","agent":"coder","schedule":"nightly","type":"schedule:skipped","key":"cron:2026-01-01T00:00:00Z","due":"2026-01-01T00:00:00Z","reason":"already_running"}"#;
        assert_eq!(json, expected);
        assert!(json.contains(event.fact.type_name()));
        assert_eq!(serde_json::from_str::<Event>(&json).unwrap(), event);
    }
}

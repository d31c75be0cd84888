//! Events: recorded facts in the past tense, numbered by one growing sequence.

mod job;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::actor::Actor;
use crate::ask::{AskId, AskStatus};
use crate::budget::{BudgetOwner, BudgetWindow, Unit};
use crate::hook::HookKind;
use crate::id::{AgentName, JobId, ScheduleId, ScheduleName, TokenName};
use crate::job::{CancelReason, ErrorKind, ExitReason, Job, JobRecord, JobState, Outcome, Termination};
use crate::provider::ReachedReserve;
use crate::report::ReportedOutcome;
use crate::retention::RetentionLimit;
use crate::schedule::{DisabledBy, SkipReason};
use crate::server::Scope;
use crate::steering::{SteeringRoute, SteeringStatus};
use crate::trigger::FiringKey;
use crate::work::{WorkItemId, WorkOutcome};

/// A fact with its position in the sequence, `seq`. A client that follows the events uses `seq` as its cursor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    pub seq: i64,
    pub at: Timestamp,
    /// Agent of the event; none if the event concerns the whole fleet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<ScheduleName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// Actor that caused the event; none if cowhand acted without a request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<Actor>,
    #[serde(flatten)]
    pub fact: Fact,
    /// The job at the time of the event, in the events `job:created`, `job:forked`, `job:started`, `job:completed`,
    /// `job:failed` and `job:cancelled`. Absent after the job was pruned or deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_record: Option<Box<JobRecord>>,
    /// The current record of the job from which this job was forked, in the event `job:forked`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original_job_record: Option<Box<JobRecord>>,
}

/// A line of a job's output. It is sent to clients when it is written and is not stored as an event, so it has no
/// `seq`. Job and line number identify it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobOutput {
    #[serde(rename = "type")]
    pub kind: OutputKind,
    pub at: Timestamp,
    pub agent: AgentName,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<ScheduleName>,
    pub job: JobId,
    /// Number of the line, counted from 1 over all attempts of the job.
    pub line: u64,
    /// `system`, `assistant`, `tool_use`, `tool_result` or `error`.
    pub output_type: String,
    /// The message as in the job's JSONL.
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

    /// Returns `agent` or `agent/schedule`; an empty text if the event concerns the whole fleet.
    pub fn subject(&self) -> String {
        match (&self.agent, &self.schedule) {
            (Some(agent), Some(schedule)) => format!("{agent}/{schedule}"),
            (Some(agent), None) => agent.to_string(),
            (None, _) => String::new(),
        }
    }
}

/// A recorded fact. A state change and its facts are written in the same transaction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type")]
pub enum Fact {
    #[serde(rename = "job:created")]
    JobCreated,
    #[serde(rename = "job:forked")]
    JobForked { forked_from: JobId },
    #[serde(rename = "job:started")]
    JobStarted { attempt: u32, node: String },
    /// The runtime reported its own id of the session.
    #[serde(rename = "job:session")]
    JobSession { session_id: String },
    /// An attempt was claimed but never began. The job is pending again.
    #[serde(rename = "job:requeued")]
    JobRequeued {
        attempt: u32,
        /// Why the attempt never began; absent if the daemon ended before it could start the attempt.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// A changed config has moved the earliest start of a job that waits for the calendar of its schedule. Without
    /// `not_before`, the job no longer waits for the calendar.
    #[serde(rename = "job:rescheduled")]
    JobRescheduled {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        not_before: Option<Timestamp>,
    },
    /// The author of the chat message edited it before the job started. The job has a new prompt.
    #[serde(rename = "job:edited")]
    JobEdited,
    /// Somebody sent a message to the job.
    #[serde(rename = "job:message")]
    JobMessage {
        /// Number of the message in its job.
        number: u32,
        route: SteeringRoute,
        /// True if the current turn of the agent ends before the agent gets the message.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        interrupt: bool,
    },
    /// A message to the job no longer waits.
    #[serde(rename = "job:message_settled")]
    JobMessageSettled {
        /// Number of the message in its job.
        number: u32,
        /// `delivered`, `next_turn` or `dropped`.
        status: SteeringStatus,
        /// Attempt that has the message, if it was delivered.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attempt: Option<u32>,
        /// Job whose prompt has the message, if it is part of the next turn.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next_job: Option<JobId>,
    },
    /// An attempt failed and another will follow.
    #[serde(rename = "job:retrying")]
    JobRetrying { attempt: u32, not_before: Timestamp, kind: ErrorKind, message: String },
    /// An attempt reached a usage limit of its provider. The job continues its session when the limit ends, or earlier
    /// with a fallback.
    #[serde(rename = "job:parked")]
    JobParked { attempt: u32, provider: String, until: Timestamp, message: String },
    /// The node of an attempt whose lease had expired has ended the attempt, or found that it had ended. The attempt was
    /// settled as lost before, so this changes neither the job nor its outcome. `exit_reason` states how the agent ended;
    /// it is absent if cowhand ended the agent. `cost_usd` is the spending that was not known before.
    #[serde(rename = "job:superseded")]
    JobSuperseded {
        attempt: u32,
        node: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_reason: Option<ExitReason>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost_usd: Option<f64>,
    },
    /// The processes of the job are being stopped.
    #[serde(rename = "job:cancelling")]
    JobCancelling {
        /// Why cowhand itself cancels the job; absent if an actor requested it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<CancelReason>,
    },
    #[serde(rename = "job:completed")]
    JobCompleted { exit_reason: ExitReason, duration_seconds: u64 },
    #[serde(rename = "job:failed")]
    JobFailed { exit_reason: ExitReason, duration_seconds: u64, kind: ErrorKind, message: String },
    #[serde(rename = "job:cancelled")]
    JobCancelled { termination: Termination, duration_seconds: u64 },
    /// The job was deleted on request. Every node that reads this event deletes the files of the job.
    #[serde(rename = "job:deleted")]
    JobDeleted {
        /// Number of attempts that may have left a folder.
        attempts: u32,
    },
    /// The job exceeded a limit of retention and was removed. Every node that reads this event deletes the files of the
    /// job.
    #[serde(rename = "job:pruned")]
    JobPruned {
        /// Number of attempts that may have left a folder.
        attempts: u32,
        /// The exceeded limit. Absent in some events of an earlier version, which recorded a deletion on request with
        /// this event.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<RetentionLimit>,
    },
    /// The schedule is new, has a changed trigger, is in the config again, or is reopened because its `end_at` was
    /// moved into the future or removed.
    #[serde(rename = "schedule:armed")]
    ScheduleArmed,
    /// The schedule has taken over the history of its former name, `AGENT/SCHEDULE`.
    #[serde(rename = "schedule:adopted")]
    ScheduleAdopted { former: String },
    /// The schedule fires; cowhand prepares the firing before it creates jobs.
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
    /// The schedule is due but has to wait. It fires when the reason no longer applies.
    #[serde(rename = "schedule:waiting")]
    ScheduleWaiting { due: Timestamp, reason: SkipReason },
    /// A temporary problem prevents the firing. cowhand tries the firing again.
    #[serde(rename = "schedule:delayed")]
    ScheduleDelayed { message: String },
    #[serde(rename = "schedule:enabled")]
    ScheduleEnabled,
    #[serde(rename = "schedule:disabled")]
    ScheduleDisabled { why: DisabledBy },
    /// The jobs of the schedule keep failing in the same way, or use no tool. The schedule does not fire until the time
    /// `until`, or until it is enabled.
    #[serde(rename = "schedule:paused")]
    SchedulePaused { reason: String, until: Timestamp },
    /// The pause of the schedule has ended.
    #[serde(rename = "schedule:resumed")]
    ScheduleResumed,
    /// The `end_at` of the schedule has passed, or it is a `delay` whose time passed while it was off.
    #[serde(rename = "schedule:finished")]
    ScheduleFinished,
    /// The trigger of the schedule cannot continue until a person fixes something.
    #[serde(rename = "schedule:error")]
    ScheduleError { reason: String },
    /// All sessions of the agent were cleared on request.
    #[serde(rename = "agent:cleared")]
    AgentCleared,
    /// The session of a conversation of web chat was reset on request: its next message starts a new session.
    #[serde(rename = "conversation:reset")]
    ConversationReset { conversation: String },
    /// The config was loaded again.
    #[serde(rename = "fleet:reloaded")]
    FleetReloaded { agents: usize, schedules: usize },
    /// The config on disk has errors. The previous config stays in force.
    #[serde(rename = "fleet:config_refused")]
    FleetConfigRefused,
    /// The history of another program was imported at the first start.
    #[serde(rename = "fleet:imported")]
    FleetImported {
        /// Name of the program: `herdctl`.
        source: String,
        /// Number of schedules that stay disabled.
        disabled: usize,
        /// Number of schedules whose time of the last run was imported.
        last_runs: usize,
        sessions: usize,
        jobs: usize,
    },
    /// The daemon was asked to stop.
    #[serde(rename = "fleet:stopping")]
    FleetStopping { keep_agents: bool },
    /// The wall clock of a node was moved by this number of seconds: forward, or back if the number is negative.
    #[serde(rename = "clock:stepped")]
    ClockStepped { node: String, seconds: i64 },
    /// The node takes no new jobs.
    #[serde(rename = "node:drained")]
    NodeDrained { node: String },
    /// The drained node takes jobs again.
    #[serde(rename = "node:undrained")]
    NodeUndrained { node: String },
    /// A node that no longer runs was removed from the list of nodes.
    #[serde(rename = "node:forgotten")]
    NodeForgotten { node: String },
    /// The park of the provider was ended on request.
    #[serde(rename = "provider:unparked")]
    ProviderUnparked { provider: String },
    /// A report about a usage window changed the reserve that holds automatic jobs back, or its end.
    #[serde(rename = "provider:reserved")]
    ProviderReserved(ReachedReserve),
    /// A report about a usage window lets automatic jobs start again before the announced time.
    #[serde(rename = "provider:released")]
    ProviderReleased { provider: String },
    #[serde(rename = "token:created")]
    TokenCreated { name: TokenName, scope: Scope },
    #[serde(rename = "token:revoked")]
    TokenRevoked { name: TokenName },
    #[serde(rename = "work:claimed")]
    WorkClaimed { item: WorkItemId },
    /// The result was reported to the work source.
    #[serde(rename = "work:reported")]
    WorkReported { item: WorkItemId, outcome: WorkOutcome },
    /// The item was given back to its work source.
    #[serde(rename = "work:released")]
    WorkReleased {
        item: WorkItemId,
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The item no longer exists in its work source, or its claim is lost. cowhand reports no result.
    #[serde(rename = "work:dropped")]
    WorkDropped { item: WorkItemId, message: String },
    /// The result or release could not be delivered to the work source. cowhand tries again. Recorded once for each new
    /// error message.
    #[serde(rename = "work:delayed")]
    WorkDelayed { item: WorkItemId, message: String },
    /// The item failed too often, or its failure is final. No agent works on it before a person has acted.
    #[serde(rename = "work:given_up")]
    WorkGivenUp { item: WorkItemId, failures: u32, message: String },
    /// The item was given up before, and a person has offered it again or its work is done.
    #[serde(rename = "work:reopened")]
    WorkReopened { item: WorkItemId },
    /// A daily or monthly budget of the agent, or without an agent of the fleet, is spent to `percent`: 80 or 100.
    /// Recorded once in each period of the budget. Amounts are in millionths of a dollar, or in tokens.
    #[serde(rename = "budget:reached")]
    BudgetReached {
        scope: BudgetOwner,
        window: BudgetWindow,
        unit: Unit,
        percent: u32,
        limit: u64,
        spent: u64,
        /// Start of the next period.
        until: Timestamp,
    },
    /// A budget that was spent to 80 or 100 percent has room again in the same period, because its limit was raised.
    #[serde(rename = "budget:relieved")]
    BudgetRelieved { scope: BudgetOwner, window: BudgetWindow, unit: Unit, limit: u64, spent: u64 },
    /// The daemon of a node ended without being stopped, or has no connection to the database. Another node noticed
    /// this.
    #[serde(rename = "node:lost")]
    NodeLost { node: String },
    #[serde(rename = "node:returned")]
    NodeReturned { node: String },
    /// The disk of a node's state folder has less free space than the limit, in bytes.
    #[serde(rename = "disk:low")]
    DiskLow { node: String, free: u64, limit: u64 },
    #[serde(rename = "disk:freed")]
    DiskFreed { node: String, free: u64, limit: u64 },
    /// An agent asks a person whether it may use a tool, or asks a free question, and waits for the answer.
    #[serde(rename = "ask:made")]
    AskMade { ask: AskId, about: String },
    #[serde(rename = "ask:answered")]
    AskAnswered { ask: AskId, status: AskStatus },
    /// The ask ended without an answer: its time limit passed, or the attempt ended.
    #[serde(rename = "ask:expired")]
    AskExpired { ask: AskId, status: AskStatus },
    /// A permission rule denied the use of a tool; no person was asked. Recorded once for each tool and rule of a job.
    #[serde(rename = "ask:denied")]
    AskDenied { tool: String, rule: String },
    /// An agent reported the result of its work. A later report of the same attempt replaces it.
    #[serde(rename = "job:reported")]
    JobReported { attempt: u32, outcome: ReportedOutcome },
    /// The job `follows` requested this job as a follow-up. `number` counts the follow-ups of the chain from 1.
    #[serde(rename = "job:followup")]
    JobFollowup { follows: JobId, number: u32 },
    /// A job requested a follow-up, and cowhand refused the request.
    #[serde(rename = "followup:refused")]
    FollowupRefused { message: String },
    /// A process of a job requested an endpoint that its job token does not open, or a process of another user
    /// requested any endpoint on the owner's socket. Recorded once for each caller and endpoint while a daemon runs.
    #[serde(rename = "access:refused")]
    AccessRefused { method: String, endpoint: String },
    /// A hook of an ended job has completed.
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
    /// Returns the fact about a settled attempt with this outcome, or about a cancelled job: the job has ended, or it
    /// waits for another attempt.
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

    /// Returns true if an attempt of a job ended.
    pub const fn ends_attempt(&self) -> bool {
        matches!(
            self,
            Self::JobCompleted { .. }
                | Self::JobFailed { .. }
                | Self::JobCancelled { .. }
                | Self::JobRetrying { .. }
                | Self::JobParked { .. }
        )
    }

    /// Returns the value of the key `type` in the JSON of the fact.
    pub const fn type_name(&self) -> &'static str {
        match self {
            Self::JobCreated => "job:created",
            Self::JobForked { .. } => "job:forked",
            Self::JobStarted { .. } => "job:started",
            Self::JobSession { .. } => "job:session",
            Self::JobRequeued { .. } => "job:requeued",
            Self::JobRescheduled { .. } => "job:rescheduled",
            Self::JobRetrying { .. } => "job:retrying",
            Self::JobEdited => "job:edited",
            Self::JobMessage { .. } => "job:message",
            Self::JobMessageSettled { .. } => "job:message_settled",
            Self::JobParked { .. } => "job:parked",
            Self::JobSuperseded { .. } => "job:superseded",
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
            Self::ConversationReset { .. } => "conversation:reset",
            Self::FleetReloaded { .. } => "fleet:reloaded",
            Self::FleetConfigRefused => "fleet:config_refused",
            Self::FleetImported { .. } => "fleet:imported",
            Self::FleetStopping { .. } => "fleet:stopping",
            Self::ClockStepped { .. } => "clock:stepped",
            Self::NodeDrained { .. } => "node:drained",
            Self::NodeUndrained { .. } => "node:undrained",
            Self::NodeForgotten { .. } => "node:forgotten",
            Self::ProviderUnparked { .. } => "provider:unparked",
            Self::ProviderReserved(_) => "provider:reserved",
            Self::ProviderReleased { .. } => "provider:released",
            Self::TokenCreated { .. } => "token:created",
            Self::TokenRevoked { .. } => "token:revoked",
            Self::WorkClaimed { .. } => "work:claimed",
            Self::WorkReported { .. } => "work:reported",
            Self::WorkReleased { .. } => "work:released",
            Self::WorkDropped { .. } => "work:dropped",
            Self::WorkDelayed { .. } => "work:delayed",
            Self::WorkGivenUp { .. } => "work:given_up",
            Self::WorkReopened { .. } => "work:reopened",
            Self::BudgetReached { .. } => "budget:reached",
            Self::BudgetRelieved { .. } => "budget:relieved",
            Self::NodeLost { .. } => "node:lost",
            Self::NodeReturned { .. } => "node:returned",
            Self::DiskLow { .. } => "disk:low",
            Self::DiskFreed { .. } => "disk:freed",
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
    fn an_event_is_written_as_one_flat_json_object() {
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

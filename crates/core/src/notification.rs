//! Notifications: messages to people about incidents of a fleet. This module decides which targets get a message about
//! an incident, when, and what the message states. It sends nothing. [`crate::incident`] decides which events open and
//! end incidents.

mod message;
mod quiet;
mod rule;
mod target;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::{AgentName, JobId, ScheduleName};
use crate::word::written_as;
pub use message::{DigestEntry, NotificationMessage, NotificationText, digest_text};
pub use quiet::QuietHours;
pub use rule::{AgentNotify, NotificationSettings, NotifyRule};
pub use target::{
    DISCORD_TOKEN_VARIABLE, MAX_NOTIFICATION_TIMEOUT, Mailbox, MailboxError, NOTIFICATION_TIMEOUT,
    NotificationTarget, SmtpSecurity, TargetAction,
};

/// What an incident is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IncidentKind {
    /// Jobs of a schedule, or jobs of an agent without a schedule, fail.
    JobFailed,
    /// An agent waits for an answer of a person.
    AskWaiting,
    /// A budget is spent to 80 %.
    BudgetLow,
    /// A budget is spent.
    BudgetSpent,
    /// A schedule has paused itself.
    SchedulePaused,
    /// The trigger of a schedule cannot continue until a person fixes something.
    ScheduleError,
    /// A usage limit of a provider is reached.
    ProviderParked,
    /// A work item failed too often. No agent works on it before a person has acted.
    ItemGivenUp,
    /// The config on disk has errors. The previous config stays in force.
    ConfigRefused,
    /// The daemon of a node ended without being stopped, or is not connected to the database.
    NodeLost,
    /// The disk of a state folder has little free space.
    DiskLow,
}

/// How urgent an incident is.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum IncidentSeverity {
    #[default]
    Info,
    Warning,
    Critical,
}

/// How an incident ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IncidentEnd {
    /// A job of the schedule or agent succeeded.
    Recovered,
    Answered,
    /// Nobody answered in time, or the attempt of the ask ended.
    Expired,
    /// The schedule or the provider continues.
    Resumed,
    /// The next day or month has begun.
    Renewed,
    /// The budget has room again, because its limit was raised.
    Relieved,
    /// A more severe incident about the same subject replaces it.
    Replaced,
    /// A person offered the item again, or the work is done.
    Reopened,
    /// The config was accepted.
    Accepted,
    /// The daemon of the node runs again.
    Returned,
    /// The disk has enough free space.
    Freed,
    /// The agent or the schedule is no longer in the config.
    Removed,
}

/// Why a notification is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NotificationKind {
    /// The incident began.
    Opened,
    /// The incident is still open and has happened again since the last message.
    Update,
    /// The incident is still open.
    Reminder,
    /// The incident is over.
    Ended,
    /// Several notifications that were held back in quiet hours.
    Digest,
    /// A person tests the target.
    Test,
}

/// State of a notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NotificationState {
    /// Not sent yet, or to be tried again.
    Waiting,
    /// A node sends it now.
    Sending,
    Sent,
    /// It could not be delivered, and is not tried again.
    Failed,
    /// It is part of a digest.
    Grouped,
    /// The config no longer has its target.
    Dropped,
}

written_as! {
    IncidentKind {
        JobFailed = "job_failed",
        AskWaiting = "ask_waiting",
        BudgetLow = "budget_low",
        BudgetSpent = "budget_spent",
        SchedulePaused = "schedule_paused",
        ScheduleError = "schedule_error",
        ProviderParked = "provider_parked",
        ItemGivenUp = "item_given_up",
        ConfigRefused = "config_refused",
        NodeLost = "node_lost",
        DiskLow = "disk_low",
    }
    IncidentSeverity { Info = "info", Warning = "warning", Critical = "critical" }
    IncidentEnd {
        Recovered = "recovered",
        Answered = "answered",
        Expired = "expired",
        Resumed = "resumed",
        Renewed = "renewed",
        Relieved = "relieved",
        Replaced = "replaced",
        Reopened = "reopened",
        Accepted = "accepted",
        Returned = "returned",
        Freed = "freed",
        Removed = "removed",
    }
    NotificationKind {
        Opened = "opened",
        Update = "update",
        Reminder = "reminder",
        Ended = "ended",
        Digest = "digest",
        Test = "test",
    }
    NotificationState {
        Waiting = "waiting",
        Sending = "sending",
        Sent = "sent",
        Failed = "failed",
        Grouped = "grouped",
        Dropped = "dropped",
    }
}

impl IncidentKind {
    pub const fn severity(self) -> IncidentSeverity {
        match self {
            Self::ProviderParked => IncidentSeverity::Info,
            Self::JobFailed
            | Self::AskWaiting
            | Self::BudgetLow
            | Self::SchedulePaused
            | Self::ItemGivenUp => IncidentSeverity::Warning,
            Self::BudgetSpent
            | Self::ScheduleError
            | Self::ConfigRefused
            | Self::NodeLost
            | Self::DiskLow => IncidentSeverity::Critical,
        }
    }
}

impl NotificationState {
    /// Returns true if the notification is still to be sent.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Waiting | Self::Sending)
    }
}

/// A state of the fleet that people are told about. While it is open, equal events are counted and open no second
/// incident.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incident {
    /// The `seq` of the event that opened it.
    pub id: i64,
    pub kind: IncidentKind,
    /// What the incident is about, for example `coder/nightly` or the name of a provider.
    pub subject: String,
    pub agent: Option<AgentName>,
    pub schedule: Option<ScheduleName>,
    /// The job of the last event.
    pub job: Option<JobId>,
    /// What happened last, in words.
    pub detail: String,
    pub opened_at: Timestamp,
    /// Time of the last event.
    pub last_at: Timestamp,
    /// Number of events.
    pub count: u64,
    /// Time at which the incident ends without an event.
    pub ends_at: Option<Timestamp>,
    /// How it ends then.
    pub ends_as: Option<IncidentEnd>,
    pub routes: Vec<IncidentRoute>,
}

/// A target that is told about an incident.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IncidentRoute {
    pub target: String,
    /// Seconds between two reminders; none without reminders.
    pub remind_seconds: Option<i64>,
    /// Time of the next reminder.
    pub remind_at: Option<Timestamp>,
    /// True if the target gets a message about the end.
    pub tells_end: bool,
    /// Number of events that the target has been told about.
    pub told: u64,
}

impl Incident {
    pub const fn severity(&self) -> IncidentSeverity {
        self.kind.severity()
    }

    /// Returns the next time at which the incident changes without an event.
    pub fn next_at(&self) -> Option<Timestamp> {
        let reminders = self.routes.iter().filter_map(|route| route.remind_at);
        reminders.chain(self.ends_at).min()
    }
}

//! Triggers: *when* a schedule fires, the key that makes each firing happen once, and the task it hands on.

mod context;
mod key;

use indexmap::IndexMap;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::cron::Cron;
use crate::github::Auth;
use crate::interval::Interval;
use crate::policy::Zone;
use crate::word::written_as;
pub use context::{CONFINED, FiringContext};
pub use key::{FiringKey, Occurrence};

/// The `type:` of a schedule and its fields; JSON in the API, part of the schedule in YAML.
///
/// Only what was set is written back, so the documented JSON lines come out as they went in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum TriggerConfig {
    /// That long after the previous job completed; at once if it never ran.
    Interval { interval: Interval },
    /// At each matching wall-clock time.
    Cron {
        /// Five fields, or six with leading seconds.
        #[serde(alias = "cron")]
        #[schemars(extend("x-aliases" = ["cron"]))]
        expression: Cron,
        /// Unset means the system's zone in YAML and UTC in JSON.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timezone: Option<Zone>,
    },
    /// Once; then the schedule is disabled. A new time re-arms it.
    Delay {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        run_at: Option<Timestamp>,
        /// Counted from when the schedule is first loaded.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        r#in: Option<Interval>,
    },
    /// On an accepted HTTP delivery.
    Webhook {
        /// Prefer `secret_env`, which keeps the secret out of the file.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(extend("x-secret" = true))]
        secret: Option<String>,
        /// The environment variable that holds the secret; while it is being changed, the new and the old one:
        /// `NEW, OLD`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        secret_env: Option<String>,
        /// Accept deliveries without a signature, if the server listens on this machine only.
        #[serde(default, skip_serializing_if = "is_default")]
        allow_unsigned: bool,
        /// Only these events, for example `issues` or `issues.opened`; empty means all.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        events: Vec<String>,
    },
    /// On a chat message.
    Chat {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        platform: Option<ChatPlatform>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        channel: Option<String>,
        /// A regular expression that the message must match.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(extend("format" = "regex"))]
        pattern: Option<String>,
    },
    /// Only when asked.
    Manual {},
    /// Once for each matching issue.
    GithubIssues {
        #[schemars(length(min = 1))]
        owner: String,
        #[schemars(length(min = 1))]
        repo: String,
        /// An issue must have all of them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        labels: Vec<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<IssueState>,
        /// Unset means 60s.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        poll_interval: Option<Interval>,
        /// Of GitHub Enterprise, for example `https://github.example.com/api/v3`; unset means GitHub itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(regex(pattern = "^https?://"))]
        api_url: Option<String>,
        #[serde(default, skip_serializing_if = "is_default")]
        auth: Auth,
        /// Unset means `rest`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        backend: Option<GithubBackend>,
    },
    /// Once for each matching pull request.
    GithubPullRequests {
        #[schemars(length(min = 1))]
        owner: String,
        #[schemars(length(min = 1))]
        repo: String,
        /// A pull request must have all of them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        labels: Vec<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<PullState>,
        /// Unset means 60s.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        poll_interval: Option<Interval>,
        /// Of GitHub Enterprise, for example `https://github.example.com/api/v3`; unset means GitHub itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(regex(pattern = "^https?://"))]
        api_url: Option<String>,
        #[serde(default, skip_serializing_if = "is_default")]
        auth: Auth,
        /// Unset means `rest`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        backend: Option<GithubBackend>,
        /// `push` fires again for each new head commit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        on: Option<PullOccasion>,
    },
    /// When a session of an agent starts, ends or is cleared.
    AgentLifecycle {
        event: LifecycleEvent,
        /// Unset means the schedule's own agent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agent: Option<String>,
    },
    /// When a job of another schedule ends.
    DispatchResult {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        source_workflow_id: Option<Uuid>,
        /// `SCHEDULE` of the same agent, or `AGENT/SCHEDULE`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        schedule: Option<String>,
        /// Unset means any end.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        status: Option<EndStatus>,
    },
    /// A type that a program built on cowhand has registered.
    Custom {
        /// As it was registered.
        #[schemars(length(min = 1))]
        name: String,
        /// Whatever it needs to know.
        #[serde(default, skip_serializing_if = "Map::is_empty")]
        with: Map<String, Value>,
    },
}

/// What makes a schedule fire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Driver {
    /// The plan: it knows when.
    Clock,
    /// Nobody but a person.
    Hand,
    /// Whoever receives deliveries and messages.
    Delivery,
    /// A strategy that waits for something and hands on tasks.
    Strategy,
}

impl TriggerConfig {
    /// The word behind `type:`.
    pub const fn type_name(&self) -> &'static str {
        match self {
            Self::Interval { .. } => "interval",
            Self::Cron { .. } => "cron",
            Self::Delay { .. } => "delay",
            Self::Webhook { .. } => "webhook",
            Self::Chat { .. } => "chat",
            Self::Manual {} => "manual",
            Self::GithubIssues { .. } => "github_issues",
            Self::GithubPullRequests { .. } => "github_pull_requests",
            Self::AgentLifecycle { .. } => "agent_lifecycle",
            Self::DispatchResult { .. } => "dispatch_result",
            Self::Custom { .. } => "custom",
        }
    }

    pub const fn driver(&self) -> Driver {
        match self {
            Self::Interval { .. } | Self::Cron { .. } | Self::Delay { .. } => Driver::Clock,
            Self::Manual {} => Driver::Hand,
            Self::Webhook { .. } | Self::Chat { .. } => Driver::Delivery,
            Self::GithubIssues { .. }
            | Self::GithubPullRequests { .. }
            | Self::AgentLifecycle { .. }
            | Self::DispatchResult { .. }
            | Self::Custom { .. } => Driver::Strategy,
        }
    }

    /// It fires once for each thing that a list shows.
    pub const fn reads_a_list(&self) -> bool {
        matches!(self, Self::GithubIssues { .. } | Self::GithubPullRequests { .. } | Self::Custom { .. })
    }

    /// It lives by what the event log says.
    pub const fn follows_events(&self) -> bool {
        matches!(self, Self::AgentLifecycle { .. } | Self::DispatchResult { .. })
    }

    /// The variables that hold a webhook's secrets.
    pub fn secret_names(&self) -> impl Iterator<Item = &str> {
        let names = match self {
            Self::Webhook { secret_env, .. } => secret_env.as_deref().unwrap_or_default(),
            _ => "",
        };
        names.split(',').map(str::trim).filter(|name| !name.is_empty())
    }

    /// Rules between fields, which no single field can show.
    pub fn check(&self) -> Result<(), TriggerError> {
        match self {
            Self::Delay { run_at, r#in } => match (run_at, r#in) {
                (Some(_), None) | (None, Some(_)) => Ok(()),
                _ => Err(TriggerError::DelayTime),
            },
            Self::Webhook { secret, secret_env, allow_unsigned, .. } => {
                let is_empty = secret.as_ref().is_some_and(|secret| secret.trim().is_empty());
                let names_nothing = secret_env.is_some() && self.secret_names().next().is_none();
                if is_empty || names_nothing {
                    Err(TriggerError::EmptySecret)
                } else if secret.is_none() && secret_env.is_none() && !allow_unsigned {
                    Err(TriggerError::NoSecret)
                } else {
                    Ok(())
                }
            }
            _ => Ok(()),
        }
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

macro_rules! words {
    ($(#[$doc:meta] $name:ident { $($variant:ident),+ })+) => {$(
        #[$doc]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        #[expect(missing_docs, reason = "the words are the documentation")]
        pub enum $name { $($variant),+ }
    )+};
}
words! {
    /// Where a chat message comes from.
    ChatPlatform { Slack, Discord }
    /// GitHub's states of an issue, and all of them.
    IssueState { Open, Closed, All }
    /// GitHub's states of a pull request, and all of them.
    PullState { Open, Closed, Merged, All }
    /// When a pull request fires.
    PullOccasion { Opened, Push }
    /// What can happen to a session.
    LifecycleEvent { SessionStart, SessionEnd, ContextClear }
    /// How GitHub is asked: by its REST API, or by the program `gh`.
    GithubBackend { Rest, Gh }
    /// How a job can end; a status that a job never ends with cannot be waited for.
    EndStatus { Completed, Failed, Cancelled }
}

written_as! {
    EndStatus { Completed = "completed", Failed = "failed", Cancelled = "cancelled" }
}

/// What a trigger hands on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Task {
    pub source_id: String,
    pub title: String,
    pub body: String,
    pub url: String,
    pub labels: Vec<String>,
    pub assignee: Option<String>,
    pub metadata: IndexMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TriggerError {
    #[error("a delay needs exactly one of `run_at` (an RFC 3339 time) and `in` (for example 2h)")]
    DelayTime,
    #[error("a webhook secret must not be empty")]
    EmptySecret,
    #[error("a webhook needs `secret_env` or `secret`; `allow_unsigned: true` accepts unsigned deliveries")]
    NoSecret,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The eight documented lines, and the types that are ours.
    const GOLDEN: [(&str, &str); 11] = [
        (
            "github_issues",
            r#"{ "type": "github_issues", "owner": "myorg", "repo": "myrepo", "labels": ["agent"] }"#,
        ),
        (
            "github_pull_requests",
            r#"{ "type": "github_pull_requests", "owner": "myorg", "repo": "myrepo", "state": "open" }"#,
        ),
        ("cron", r#"{ "type": "cron", "expression": "0 9 * * MON-FRI" }"#),
        ("delay", r#"{ "type": "delay", "run_at": "2026-04-01T09:00:00Z" }"#),
        ("agent_lifecycle", r#"{ "type": "agent_lifecycle", "event": "session_start" }"#),
        (
            "dispatch_result",
            r#"{ "type": "dispatch_result", "source_workflow_id": "3f2504e0-4f89-41d3-9a0c-0305e82c3301", "status": "completed" }"#,
        ),
        ("webhook", r#"{ "type": "webhook", "secret": "my-hmac-secret" }"#),
        ("manual", r#"{ "type": "manual" }"#),
        ("interval", r#"{ "type": "interval", "interval": "5m" }"#),
        ("chat", r#"{ "type": "chat", "platform": "slack", "channel": "C42", "pattern": "^!triage" }"#),
        ("custom", r#"{ "type": "custom", "name": "inbox", "with": { "folder": "in" } }"#),
    ];

    #[test]
    fn golden_lines_round_trip_and_gain_nothing() {
        for (name, line) in GOLDEN {
            let trigger: TriggerConfig = serde_json::from_str(line).unwrap();
            assert_eq!(trigger.type_name(), name);
            assert_eq!(trigger.check(), Ok(()));
            let before: Value = serde_json::from_str(line).unwrap();
            assert_eq!(serde_json::to_value(&trigger).unwrap(), before, "{name}");
        }
    }

    #[test]
    fn defaults_are_not_written() {
        for (written, kept) in [
            (r#"{"type":"cron","cron":"@daily"}"#, r#"{"type":"cron","expression":"@daily"}"#),
            (
                r#"{"type":"webhook","secret_env":"S","events":[],"allow_unsigned":false}"#,
                r#"{"type":"webhook","secret_env":"S"}"#,
            ),
            (
                r#"{"type":"github_issues","owner":"o","repo":"r","labels":[],"state":null}"#,
                r#"{"type":"github_issues","owner":"o","repo":"r"}"#,
            ),
        ] {
            let trigger: TriggerConfig = serde_json::from_str(written).unwrap();
            assert_eq!(serde_json::to_string(&trigger).unwrap(), kept);
        }
    }

    #[test]
    fn wrong_triggers_are_refused() {
        for (line, message) in [
            (r#"{"type":"sometimes"}"#, "unknown variant `sometimes`, expected one of `interval`, `cron`"),
            (r#"{"type":"manual","when":"now"}"#, "unknown field `when`"),
            (r#"{"type":"cron","expression":"0 0 30 2 *"}"#, "can never match"),
            (r#"{"type":"cron","expression":"@daily","timezone":"Mars"}"#, "unknown time zone"),
            (r#"{"type":"agent_lifecycle","event":"born"}"#, "unknown variant `born`"),
            (r#"{"type":"dispatch_result","status":"dispatched"}"#, "unknown variant `dispatched`"),
            (r#"{"type":"delay","run_at":"tomorrow"}"#, "expected 0-9 but got t"),
        ] {
            let error = serde_json::from_str::<TriggerConfig>(line).unwrap_err().to_string();
            assert!(error.contains(message), "{line}: {error}");
        }
        for (line, error) in [
            (r#"{"type":"delay"}"#, TriggerError::DelayTime),
            (r#"{"type":"delay","run_at":"2026-04-01T09:00:00Z","in":"2h"}"#, TriggerError::DelayTime),
            (r#"{"type":"webhook"}"#, TriggerError::NoSecret),
            (r#"{"type":"webhook","secret":" "}"#, TriggerError::EmptySecret),
            (r#"{"type":"webhook","secret_env":" , "}"#, TriggerError::EmptySecret),
            (r#"{"type":"webhook","secret":"s","secret_env":""}"#, TriggerError::EmptySecret),
        ] {
            let trigger: TriggerConfig = serde_json::from_str(line).unwrap();
            assert_eq!(trigger.check(), Err(error), "{line}");
        }
    }
}

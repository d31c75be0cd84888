//! Triggers: *when* a schedule fires, the key that makes each firing happen once, and the task it hands on.

use std::fmt;

use indexmap::IndexMap;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::cron::Cron;
use crate::interval::Interval;
use crate::policy::Zone;

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
        /// The environment variable that holds the secret.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        secret_env: Option<String>,
        /// Accept deliveries without a signature.
        #[serde(default, skip_serializing_if = "is_default")]
        allow_unsigned: bool,
        /// Only these event names; empty means all.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        events: Vec<String>,
        #[serde(default, skip_serializing_if = "is_default")]
        filter: WebhookFilter,
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
        }
    }

    /// Rules between fields, which no single field can show.
    pub fn check(&self) -> Result<(), TriggerError> {
        match self {
            Self::Delay { run_at, r#in } => match (run_at, r#in) {
                (Some(_), None) | (None, Some(_)) => Ok(()),
                _ => Err(TriggerError::DelayTime),
            },
            Self::Webhook { secret, secret_env, allow_unsigned, .. } => {
                let secrets = [secret, secret_env].into_iter().flatten();
                if secrets.clone().any(|secret| secret.trim().is_empty()) {
                    Err(TriggerError::EmptySecret)
                } else if secrets.count() == 0 && !allow_unsigned {
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

/// All that are set must hold.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WebhookFilter {
    /// The payload's `action` is one of these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<String>,
    /// The issue or pull request has one of these labels.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// JSON pointers into the payload and the value found there.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub payload: IndexMap<String, Value>,
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
    /// How a job can end; a status that a job never ends with cannot be waited for.
    EndStatus { Completed, Failed, Cancelled }
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

/// One occurrence of a trigger. Within its schedule its key is the same after a restart, on another machine and
/// for a redelivery; the generation starts anew what was re-armed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occurrence<'a> {
    Cron(Timestamp),
    /// The how-manieth interval firing of the schedule this is, from 1.
    Interval(u64),
    Delay(Timestamp),
    Webhook {
        delivery_id: &'a str,
    },
    Chat {
        platform: ChatPlatform,
        message_id: &'a str,
    },
    Github {
        number: u64,
        head: Option<&'a str>,
    },
    Event {
        seq: i64,
    },
    /// By a person: their idempotency key, or a new UUID.
    Manual(&'a str),
}

impl Occurrence<'_> {
    pub fn key(&self, generation: u32) -> FiringKey {
        let base = match self {
            Self::Cron(at) => format!("cron:{}", whole_second(*at)),
            Self::Interval(number) => format!("interval:{number}"),
            Self::Delay(at) => format!("delay:{at}"),
            Self::Webhook { delivery_id } => format!("webhook:{delivery_id}"),
            Self::Chat { platform: ChatPlatform::Slack, message_id } => format!("chat:slack:{message_id}"),
            Self::Chat { platform: ChatPlatform::Discord, message_id } => {
                format!("chat:discord:{message_id}")
            }
            Self::Github { number, head: None } => format!("github:{number}"),
            Self::Github { number, head: Some(head) } => format!("github:{number}:{head}"),
            Self::Event { seq } => format!("event:{seq}"),
            Self::Manual(key) => format!("manual:{key}"),
        };
        FiringKey(if generation == 0 { base } else { format!("{base}#{generation}") })
    }
}

fn whole_second(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

/// Unique within a schedule; inserting it is the lock.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct FiringKey(String);

impl FiringKey {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The word before the colon.
    pub fn kind(&self) -> &str {
        self.0.split_once(':').map_or(self.as_str(), |(kind, _)| kind)
    }

    /// The schedule's own clock made it, as opposed to something outside.
    pub fn is_by_clock(&self) -> bool {
        matches!(self.kind(), "cron" | "interval" | "delay")
    }

    /// A person made it, as opposed to the schedule's trigger.
    pub fn is_by_hand(&self) -> bool {
        self.kind() == "manual"
    }

    /// A key as it was stored.
    pub fn stored(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Display for FiringKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
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

    /// The eight documented lines, and the two types that are ours.
    const GOLDEN: [(&str, &str); 10] = [
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
                r#"{"type":"webhook","secret_env":"S","events":[],"allow_unsigned":false,"filter":{}}"#,
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
        ] {
            let trigger: TriggerConfig = serde_json::from_str(line).unwrap();
            assert_eq!(trigger.check(), Err(error), "{line}");
        }
    }

    #[test]
    fn firing_keys() {
        let at: Timestamp = "2026-04-01T09:00:00.25Z".parse().unwrap();
        for (occurrence, generation, key) in [
            (Occurrence::Cron(at), 0, "cron:2026-04-01T09:00:00Z"),
            (Occurrence::Interval(7), 0, "interval:7"),
            (Occurrence::Delay(at), 0, "delay:2026-04-01T09:00:00.25Z"),
            (Occurrence::Delay(at), 2, "delay:2026-04-01T09:00:00.25Z#2"),
            (Occurrence::Webhook { delivery_id: "d-1" }, 0, "webhook:d-1"),
            (Occurrence::Chat { platform: ChatPlatform::Discord, message_id: "9" }, 0, "chat:discord:9"),
            (Occurrence::Github { number: 42, head: None }, 1, "github:42#1"),
            (Occurrence::Github { number: 42, head: Some("abc") }, 0, "github:42:abc"),
            (Occurrence::Event { seq: 17 }, 0, "event:17"),
            (Occurrence::Manual("k"), 0, "manual:k"),
        ] {
            assert_eq!(occurrence.key(generation).as_str(), key);
        }
    }
}

//! Triggers: when a schedule fires, the key that makes each firing unique, and the task that a trigger passes on.

mod context;
mod key;
mod kind;

use indexmap::IndexMap;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

pub use crate::chat_platform::ChatPlatform;
use crate::cron::Cron;
use crate::github::Auth;
use crate::interval::Interval;
use crate::policy::Zone;
use crate::word::written_as;
pub use context::{CONFINED_KEY, FiringContext};
pub use key::{FiringKey, MAX_KEY_BYTES, Occurrence};
pub use kind::{ClockTrigger, EventTrigger, GithubItem, TriggerKind};

/// Default time between two polls of a GitHub trigger.
pub const DEFAULT_POLL_INTERVAL: Interval = Interval::minutes(1);

/// The trigger of a schedule: its `type:` and the fields of this type. In the API, the trigger is a JSON object. In
/// YAML, the keys of the trigger are keys of the schedule.
///
/// Only set fields are serialized, so that the JSON lines in the tests below are reproduced exactly.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum TriggerConfig {
    /// Fires this long after the previous job of the schedule ended; at once if the schedule has never run.
    Interval { interval: Interval },
    /// Fires at each matching wall-clock time.
    Cron {
        /// Cron expression of five fields, or six with leading seconds.
        #[serde(alias = "cron")]
        #[schemars(extend("x-aliases" = ["cron"]))]
        expression: Cron,
        /// Time zone; unset means the system's zone in YAML and UTC in JSON.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timezone: Option<Zone>,
    },
    /// Fires once; then the schedule is disabled. A new `run_at` or `in` re-arms the schedule.
    Delay {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        run_at: Option<Timestamp>,
        /// Delay from the time when the schedule is first loaded.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        r#in: Option<Interval>,
    },
    /// Fires on an accepted HTTP delivery.
    Webhook {
        /// Secret of the signatures. Prefer `secret_env`, which keeps the secret out of the file.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(extend("x-secret" = true))]
        secret: Option<String>,
        /// Environment variable that contains the secret. While the secret is being changed, `NEW, OLD` names two
        /// variables, one with the new and one with the old secret.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(extend("format" = "variables"))]
        secret_env: Option<String>,
        /// Accept deliveries without a signature, if the server listens on this machine only.
        #[serde(default, skip_serializing_if = "is_default")]
        allow_unsigned: bool,
        /// Events to accept, for example `issues` or `issues.opened`; empty means all.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        events: Vec<String>,
    },
    /// Fires on a chat message.
    Chat {
        /// Platform of the message; unset means any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        platform: Option<ChatPlatform>,
        /// One more channel, besides `channels`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        channel: Option<String>,
        /// Ids of channels; without any, messages in all channels count.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        channels: Vec<String>,
        /// One more regular expression, besides `patterns`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(extend("format" = "regex"))]
        pattern: Option<String>,
        /// Regular expressions, one of which the message has to match; without any, all messages count.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[schemars(extend("items" = { "type": "string", "format": "regex" }))]
        patterns: Vec<String>,
    },
    /// Fires only by hand.
    Manual {},
    /// Fires once for each matching issue.
    GithubIssues {
        #[schemars(length(min = 1))]
        owner: String,
        #[schemars(length(min = 1))]
        repo: String,
        /// Labels, all of which an issue has to have.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        labels: Vec<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<IssueState>,
        /// Time between two polls; unset means 60s.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        poll_interval: Option<Interval>,
        /// API address of GitHub Enterprise, for example `https://github.example.com/api/v3`; unset means github.com.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(regex(pattern = "^https?://"))]
        api_url: Option<String>,
        #[serde(default, skip_serializing_if = "is_default")]
        auth: Auth,
        /// Way to access GitHub; unset means `rest`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        backend: Option<GithubBackend>,
    },
    /// Fires once for each matching pull request.
    GithubPullRequests {
        #[schemars(length(min = 1))]
        owner: String,
        #[schemars(length(min = 1))]
        repo: String,
        /// Labels, all of which a pull request has to have.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        labels: Vec<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<PullState>,
        /// Time between two polls; unset means 60s.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        poll_interval: Option<Interval>,
        /// API address of GitHub Enterprise, for example `https://github.example.com/api/v3`; unset means github.com.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(regex(pattern = "^https?://"))]
        api_url: Option<String>,
        #[serde(default, skip_serializing_if = "is_default")]
        auth: Auth,
        /// Way to access GitHub; unset means `rest`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        backend: Option<GithubBackend>,
        /// Event of a pull request on which the trigger fires; `push` fires again for each new head commit. Unset means
        /// `opened`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        on: Option<PullEvent>,
    },
    /// Fires when a session of an agent starts, ends or is cleared.
    AgentLifecycle {
        event: LifecycleEvent,
        /// Name of the agent; unset means the schedule's own agent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agent: Option<String>,
    },
    /// Fires when a job ends, unless the job belongs to this schedule.
    DispatchResult {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        source_workflow_id: Option<Uuid>,
        /// Schedule of the ended job: `SCHEDULE` of the same agent, or `AGENT/SCHEDULE`; unset means any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        schedule: Option<String>,
        /// Status of the ended job; unset means any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        status: Option<EndStatus>,
    },
    /// A type that a program built on cowhand has registered.
    Custom {
        /// Name under which it was registered.
        #[schemars(length(min = 1))]
        name: String,
        /// Settings of the type.
        #[serde(default, skip_serializing_if = "Map::is_empty")]
        with: Map<String, Value>,
    },
}

/// Source of a trigger's firings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Driver {
    /// The planner, which knows the due times.
    Clock,
    /// A person only.
    Hand,
    /// The receiver of webhooks and chat messages.
    Delivery,
    /// A strategy that waits for something and passes on tasks.
    Strategy,
}

macro_rules! type_names {
    ($($variant:ident = $name:literal),+ $(,)?) => {
        impl TriggerConfig {
            /// All values of `type:`, in the order of the variants.
            pub const TYPES: &'static [&'static str] = &[$($name),+];

            /// Returns the value of `type:`.
            pub const fn type_name(&self) -> &'static str {
                match self { $(Self::$variant { .. } => $name),+ }
            }
        }
    };
}
type_names! {
    Interval = "interval",
    Cron = "cron",
    Delay = "delay",
    Webhook = "webhook",
    Chat = "chat",
    Manual = "manual",
    GithubIssues = "github_issues",
    GithubPullRequests = "github_pull_requests",
    AgentLifecycle = "agent_lifecycle",
    DispatchResult = "dispatch_result",
    Custom = "custom",
}

impl TriggerConfig {
    /// Returns the kind of the trigger.
    pub fn kind(&self) -> TriggerKind<'_> {
        match self {
            Self::Interval { interval } => TriggerKind::Clock(ClockTrigger::Interval(*interval)),
            Self::Cron { expression, .. } => TriggerKind::Clock(ClockTrigger::Cron(expression)),
            Self::Delay { .. } => TriggerKind::Clock(ClockTrigger::Delay),
            Self::Manual {} => TriggerKind::Hand,
            Self::Webhook { secret, secret_env, allow_unsigned, events, .. } => TriggerKind::Webhook {
                secret: secret.as_deref(),
                secret_env: secret_env.as_deref(),
                allow_unsigned: *allow_unsigned,
                events,
            },
            Self::Chat { .. } => TriggerKind::Chat,
            Self::GithubIssues { owner, repo, .. } => {
                TriggerKind::Github { owner, repo, item: GithubItem::Issue }
            }
            Self::GithubPullRequests { owner, repo, .. } => {
                TriggerKind::Github { owner, repo, item: GithubItem::PullRequest }
            }
            Self::AgentLifecycle { event, agent } => {
                TriggerKind::Event(EventTrigger::Lifecycle { event: *event, agent: agent.as_deref() })
            }
            Self::DispatchResult { source_workflow_id, schedule, status } => {
                TriggerKind::Event(EventTrigger::JobEnded {
                    id: *source_workflow_id,
                    schedule: schedule.as_deref(),
                    status: *status,
                })
            }
            Self::Custom { .. } => TriggerKind::Tasks { is_list: true, has_author: true },
        }
    }

    /// Checks the rules between fields.
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
            Self::Interval { .. }
            | Self::Cron { .. }
            | Self::Chat { .. }
            | Self::Manual {}
            | Self::GithubIssues { .. }
            | Self::GithubPullRequests { .. }
            | Self::AgentLifecycle { .. }
            | Self::DispatchResult { .. }
            | Self::Custom { .. } => Ok(()),
        }
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

macro_rules! word_enums {
    ($($(#[$attribute:meta])+ $name:ident { $($variant:ident),+ })+) => {$(
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
        $(#[$attribute])+
        #[serde(rename_all = "snake_case")]
        #[expect(missing_docs, reason = "the words are the documentation")]
        pub enum $name { $($variant),+ }
    )+};
}
word_enums! {
    /// State of an issue on GitHub, or all states.
    IssueState { Open, Closed, All }
    /// State of a pull request on GitHub, or all states.
    PullState { Open, Closed, Merged, All }
    /// Event of a pull request on which a trigger fires.
    PullEvent { Opened, Push }
    /// Change of a session.
    LifecycleEvent { SessionStart, SessionEnd, ContextClear }
    /// Way to access GitHub: its REST API, or the program `gh`.
    GithubBackend { Rest, Gh }
    /// Status of an ended job.
    EndStatus { Completed, Failed, Cancelled }
}

written_as! {
    EndStatus { Completed = "completed", Failed = "failed", Cancelled = "cancelled" }
}

/// A task that a trigger passes on.
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

/// Key of the metadata of a task with the number of schedules that triggered each other before this task.
pub const TRIGGERED_IN_A_ROW: &str = "chain_length";
/// If this many schedules have triggered each other in a row, the next firing counts as part of a cycle and is skipped.
pub const MAX_TRIGGERED_IN_A_ROW: u32 = 10;

impl Task {
    /// Returns whether too many schedules have triggered each other in a row. This ends a cycle that the check of the
    /// config could not detect.
    pub(crate) fn ends_a_cycle(&self) -> bool {
        let in_a_row = self.metadata.get(TRIGGERED_IN_A_ROW).and_then(|length| length.parse().ok());
        in_a_row.is_some_and(|length: u32| length >= MAX_TRIGGERED_IN_A_ROW)
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
pub(crate) mod tests {
    use std::collections::BTreeSet;
    use std::io;
    use std::path::Path;

    use super::*;
    use crate::config::{ConfigEnvironment, load};

    /// One trigger of each type, in the JSON form in which it is read and written. Requirements in `tests/seeds.md` ask
    /// for the first eight lines.
    pub(crate) const GOLDEN: &[(&str, &str)] = &[
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
        ("chat", r#"{ "type": "chat", "channels": ["C42", "C43"], "patterns": ["^!triage", "deploy"] }"#),
        ("custom", r#"{ "type": "custom", "name": "inbox", "with": { "folder": "in" } }"#),
    ];

    #[test]
    fn golden_triggers_are_read_and_written_unchanged() {
        let golden: BTreeSet<_> = GOLDEN.iter().map(|(name, _)| *name).collect();
        assert_eq!(golden, TriggerConfig::TYPES.iter().copied().collect(), "each type has its line");
        for (name, line) in GOLDEN {
            let trigger: TriggerConfig = serde_json::from_str(line).unwrap();
            assert_eq!(trigger.type_name(), *name);
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

    /// For each type, a config with a wrong field, and the whole problem that is reported: the key and the message.
    const WRONG: &[(&str, &str, &str)] = &[
        (
            "interval",
            "interval: 5 minutes",
            r#"interval: Invalid time unit "minutes". Valid units are: s, m, h, d"#,
        ),
        (
            "cron",
            "cron: 0 25 * * *",
            r#"cron: invalid hour "25" in cron expression; expected 0-23, lists (1,2), ranges (1-5) or steps (*/5)"#,
        ),
        (
            "delay",
            "in: soon",
            r#"in: "soon" is not an interval. Use one number and one unit (s, m, h, d), for example 90m"#,
        ),
        ("webhook", "secret_env: [S]", "secret_env: expected text, found a list"),
        ("chat", "platform: irc", "platform: `irc` is not one of `slack` or `discord`"),
        ("manual", "when: now", "when: unknown key `when`"),
        ("github_issues", "owner: o, repo: ''", "repo: must not be empty"),
        (
            "github_pull_requests",
            "owner: o, repo: r, on: close",
            "on: `close` is not one of `opened` or `push`",
        ),
        (
            "agent_lifecycle",
            "event: born",
            "event: `born` is not one of `session_start`, `session_end` or `context_clear`",
        ),
        (
            "dispatch_result",
            "source_workflow_id: x",
            r#"source_workflow_id: "x" is not a UUID; for example 3f2504e0-4f89-41d3-9a0c-0305e82c3301"#,
        ),
        ("custom", "name: ''", "name: must not be empty"),
    ];

    #[test]
    fn a_wrong_field_of_each_type_is_reported_at_its_key() {
        let wrong: BTreeSet<_> = WRONG.iter().map(|(name, ..)| *name).collect();
        assert_eq!(wrong, TriggerConfig::TYPES.iter().copied().collect(), "each type has its line");
        for (name, fields, report) in WRONG {
            let text = format!("agents: [{{name: a, schedules: {{s: {{type: {name}, {fields}}}}}}}]");
            let mut read = |path: &Path| match path.to_str() {
                Some("cowhand.yaml") => Ok(text.clone()),
                _ => Err(io::Error::from(io::ErrorKind::NotFound)),
            };
            let (zone, now) = ("UTC".parse().unwrap(), Timestamp::UNIX_EPOCH);
            let loaded = load(
                Path::new("cowhand.yaml"),
                ConfigEnvironment { read: &mut read, env: &|_| None, is_folder: &|_| true, zone, now },
            );
            let problems =
                loaded.problems.iter().map(|problem| format!("{}: {}", problem.key, problem.message));
            let problems: Vec<String> = problems.collect();
            assert_eq!(problems, [format!("agents[0].schedules.s.{report}")]);
        }
    }

    #[test]
    fn the_documentation_names_every_type_and_field() {
        let page = include_str!("../../../docs/triggers.md");
        let schema = schemars::schema_for!(TriggerConfig).to_value();
        let variants = schema["oneOf"].as_array().unwrap();
        assert_eq!(variants.len(), TriggerConfig::TYPES.len());
        for variant in variants {
            let fields = variant["properties"].as_object().unwrap();
            let name = fields["type"]["const"].as_str().unwrap();
            assert!(page.contains(&format!("\n| `{name}` |")), "{name} has a row in docs/triggers.md");
            for field in fields.keys().filter(|field| *field != "type") {
                let is_named = page.contains(&format!("`{field}`")) || page.contains(&format!("`{field}: "));
                assert!(is_named, "docs/triggers.md names the field {field} of {name}");
            }
        }
    }
}

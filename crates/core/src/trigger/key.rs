//! The firing key, which makes each occurrence of a trigger fire once.

use std::borrow::Cow;
use std::fmt;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{ChatPlatform, PullEvent, Task, TriggerConfig, TriggerKind};

/// Maximum length in bytes of an id or a key from outside that becomes part of a firing key. Firing keys are indexed,
/// and PostgreSQL cannot index long texts.
pub const MAX_KEY_BYTES: usize = 200;

/// One occurrence of a trigger. Within a schedule, an occurrence has the same key after a restart, on another machine
/// and for a redelivery. The generation makes the keys of a re-armed schedule differ from its earlier keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occurrence<'a> {
    Cron(Timestamp),
    /// Number of the interval firing within the schedule, from 1.
    Interval(u64),
    /// Number of the fill within the schedule, from 1.
    Fill(u64),
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
    /// Firing by hand: its idempotency key, or a new UUID.
    Manual(&'a str),
    /// Task of a trigger that belongs to none of the other kinds. The key begins with the type of the trigger.
    Task {
        trigger_type: &'static str,
        id: &'a str,
    },
}

impl<'a> Occurrence<'a> {
    /// Returns the occurrence of a task from a strategy.
    pub fn of_task(trigger: &TriggerConfig, task: &'a Task) -> Self {
        let id = task.source_id.as_str();
        let number = id.parse().ok();
        let head = task.metadata.get("head_sha").map(String::as_str);
        let of_github = |head| number.map(|number| Self::Github { number, head });
        let is_for_each_head =
            matches!(trigger, TriggerConfig::GithubPullRequests { on: Some(PullEvent::Push), .. });
        let found = match trigger.kind() {
            TriggerKind::Github { .. } => of_github(head.filter(|_| is_for_each_head)),
            TriggerKind::Event(_) => id.parse().ok().map(|seq| Self::Event { seq }),
            TriggerKind::Tasks { .. } => Some(Self::Task { trigger_type: trigger.type_name(), id }),
            // Only strategies pass on tasks.
            TriggerKind::Clock(_) | TriggerKind::Hand | TriggerKind::Webhook { .. } | TriggerKind::Chat => {
                None
            }
        };
        found.unwrap_or(Self::custom(id))
    }

    /// Returns the occurrence of a task with any id. Its key begins with `custom:`.
    pub const fn custom(id: &'a str) -> Self {
        Self::Task { trigger_type: "custom", id }
    }

    pub fn key(&self, generation: u32) -> FiringKey {
        let base = match self {
            Self::Cron(at) => format!("cron:{}", whole_second(*at)),
            Self::Interval(number) => format!("interval:{number}"),
            Self::Fill(number) => format!("fill:{number}"),
            Self::Delay(at) => format!("delay:{at}"),
            Self::Webhook { delivery_id } => format!("webhook:{}", safe_id(delivery_id)),
            Self::Chat { platform: ChatPlatform::Slack, message_id } => {
                format!("chat:slack:{}", safe_id(message_id))
            }
            Self::Chat { platform: ChatPlatform::Discord, message_id } => {
                format!("chat:discord:{}", safe_id(message_id))
            }
            Self::Github { number, head: None } => format!("github:{number}"),
            Self::Github { number, head: Some(head) } => format!("github:{number}:{head}"),
            Self::Event { seq } => format!("event:{seq}"),
            Self::Manual(key) => format!("manual:{key}"),
            Self::Task { trigger_type, id } => format!("{trigger_type}:{}", safe_id(id)),
        };
        FiringKey(base).in_generation(generation)
    }
}

fn whole_second(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

/// Returns an id from outside unchanged if it is short and has no `#` and no control characters. Otherwise returns a
/// UUID derived from the id. `#` would be taken for the beginning of a generation.
fn safe_id(id: &str) -> Cow<'_, str> {
    if id.len() <= MAX_KEY_BYTES && !id.contains(|c: char| c == '#' || c.is_control()) {
        return Cow::Borrowed(id);
    }
    Cow::Owned(Uuid::new_v5(&Uuid::NAMESPACE_OID, id.as_bytes()).to_string())
}

/// Key of a firing, unique within a schedule, so that each occurrence fires once.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct FiringKey(String);

impl FiringKey {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Adds the generation to a key of the first generation.
    #[must_use]
    pub fn in_generation(&self, generation: u32) -> Self {
        if generation == 0 { self.clone() } else { Self(format!("{self}#{generation}")) }
    }

    /// Returns the part before the colon.
    pub fn kind(&self) -> &str {
        self.0.split_once(':').map_or(self.as_str(), |(kind, _)| kind)
    }

    /// Checks whether the clock fired the schedule, as opposed to a person or something outside.
    pub fn is_by_clock(&self) -> bool {
        matches!(self.kind(), "cron" | "interval" | "fill" | "delay")
    }

    /// Checks whether a firing without a job ends when its schedule is disabled. A delay is disabled as soon as it
    /// has fired, so its firing still runs, like firings by hand and from outside.
    pub fn is_dropped_when_disabled(&self) -> bool {
        self.is_by_clock() && self.kind() != "delay"
    }

    /// Checks whether it is the key of a fill.
    pub fn is_fill(&self) -> bool {
        self.kind() == "fill"
    }

    /// Checks whether the schedule was fired by hand, and not by its trigger.
    pub fn is_by_hand(&self) -> bool {
        self.kind() == "manual"
    }

    /// Checks whether no person requested the firing: it is neither by hand nor for a chat message.
    pub fn is_automatic(&self) -> bool {
        !matches!(self.kind(), "manual" | "chat")
    }

    /// Returns the `seq` of the event that caused the firing; none if no event caused it.
    pub fn event(&self) -> Option<i64> {
        self.0.strip_prefix("event:")?.parse().ok()
    }

    /// Creates a key from its stored form.
    pub fn stored(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Display for FiringKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_occurrence_has_its_firing_key() {
        let at: Timestamp = "2026-04-01T09:00:00.25Z".parse().unwrap();
        for (occurrence, generation, key) in [
            (Occurrence::Cron(at), 0, "cron:2026-04-01T09:00:00Z"),
            (Occurrence::Interval(7), 0, "interval:7"),
            (Occurrence::Delay(at), 0, "delay:2026-04-01T09:00:00.25Z"),
            (Occurrence::Delay(at), 2, "delay:2026-04-01T09:00:00.25Z#2"),
            (Occurrence::Fill(3), 0, "fill:3"),
            (Occurrence::Fill(3), 1, "fill:3#1"),
            (Occurrence::Webhook { delivery_id: "d-1" }, 0, "webhook:d-1"),
            (Occurrence::Chat { platform: ChatPlatform::Discord, message_id: "9" }, 0, "chat:discord:9"),
            (Occurrence::Github { number: 42, head: None }, 1, "github:42#1"),
            (Occurrence::Github { number: 42, head: Some("abc") }, 0, "github:42:abc"),
            (Occurrence::Event { seq: 17 }, 0, "event:17"),
            (Occurrence::Manual("k"), 0, "manual:k"),
            (Occurrence::custom("mail 7"), 1, "custom:mail 7#1"),
        ] {
            assert_eq!(occurrence.key(generation).as_str(), key);
        }
    }

    #[test]
    fn only_firings_by_hand_and_of_chats_are_not_automatic() {
        let at = Timestamp::UNIX_EPOCH;
        for (occurrence, expected) in [
            (Occurrence::Manual("k"), false),
            (Occurrence::Chat { platform: ChatPlatform::Slack, message_id: "9" }, false),
            (Occurrence::Cron(at), true),
            (Occurrence::Interval(7), true),
            (Occurrence::Delay(at), true),
            (Occurrence::Fill(3), true),
            (Occurrence::Webhook { delivery_id: "chat:1" }, true),
            (Occurrence::Github { number: 42, head: None }, true),
            (Occurrence::Event { seq: 17 }, true),
            (Occurrence::custom("manual:1"), true),
        ] {
            let key = occurrence.key(1);
            assert_eq!(key.is_automatic(), expected, "{key}");
        }
    }

    #[test]
    fn long_or_unusual_ids_become_short_unique_keys() {
        let long = "x".repeat(1_000_000);
        let of = |id: &str| Occurrence::custom(id).key(0);
        for id in [&long, "two\nlines", "a#1", "\u{1b}[31m"] {
            let key = of(id);
            assert!(key.as_str().len() < 60 && !key.as_str().contains(['#', '\n', '\u{1b}']), "{key}");
            assert_eq!(key, of(id), "the same every time");
        }
        assert_ne!(of("a#1"), Occurrence::custom("a").key(1));
        assert_ne!(of(&long), of(&"x".repeat(1_000_001)));
    }

    #[test]
    fn tasks_have_the_firing_key_of_their_trigger() {
        let task = |id: &str| Task {
            source_id: id.into(),
            metadata: [("head_sha".to_owned(), "abc".to_owned())].into(),
            ..Task::default()
        };
        let pulls = r#"{"type":"github_pull_requests","owner":"o","repo":"r"}"#;
        for (trigger, id, key) in [
            (r#"{"type":"github_issues","owner":"o","repo":"r"}"#, "42", "github:42"),
            (pulls, "42", "github:42"),
            (&pulls.replace('}', r#","on":"push"}"#), "42", "github:42:abc"),
            (r#"{"type":"agent_lifecycle","event":"session_end"}"#, "17", "event:17"),
            (r#"{"type":"dispatch_result"}"#, "17", "event:17"),
            (r#"{"type":"custom","name":"x"}"#, "17", "custom:17"),
            (pulls, "not a number", "custom:not a number"),
        ] {
            let trigger: TriggerConfig = serde_json::from_str(trigger).unwrap();
            let key_of_task = Occurrence::of_task(&trigger, &task(id)).key(0);
            assert_eq!(key_of_task.as_str(), key);
            assert_eq!(key_of_task.event(), (key == "event:17").then_some(17));
        }
    }
}

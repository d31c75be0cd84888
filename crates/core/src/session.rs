//! Session policies: which jobs of an agent continue the same session, and for how long.

use jiff::SignedDuration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cut::indexed;
use crate::word::written_as;
use crate::work::WorkItemId;

/// Which jobs of an agent share one session: none, all, those for the same work item, or those of the same conversation
/// in a chat. With `per_item`, a job without a work item starts a new session; with `per_chat`, a job without a
/// conversation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SessionPolicy {
    #[default]
    Fresh,
    Continue,
    PerItem,
    PerChat,
}

written_as! {
    SessionPolicy { Fresh = "fresh", Continue = "continue", PerItem = "per_item", PerChat = "per_chat" }
}

/// Settings of the sessions of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Session {
    pub policy: SessionPolicy,
    /// Time after which an unused session is not continued.
    pub expires: SignedDuration,
}

impl Default for Session {
    fn default() -> Self {
        Self { policy: SessionPolicy::default(), expires: SESSION_EXPIRES_AFTER }
    }
}

/// Default time after which an unused session is not continued.
pub const SESSION_EXPIRES_AFTER: SignedDuration = SignedDuration::from_hours(24);

impl SessionPolicy {
    /// Returns the session key. Jobs of an agent with the same key share a session; a job without a key starts a new
    /// session.
    pub fn key(self, item: Option<&WorkItemId>, chat: Option<&str>) -> Option<String> {
        match self {
            Self::Fresh => None,
            Self::Continue => Some("agent".to_owned()),
            Self::PerItem => item.map(|item| format!("item {item}")),
            Self::PerChat => chat.map(|chat| format!("chat {}", indexed(chat))),
        }
    }
}

/// Parses `24h` or `1.5d`; herdctl accepts fractions here. None if the text is not valid.
pub fn expiry(text: &str) -> Option<SignedDuration> {
    let unit = text.chars().last()?;
    let seconds = match unit {
        's' => 1.0,
        'm' => 60.0,
        'h' => 3_600.0,
        'd' => 86_400.0,
        'w' => 604_800.0,
        _ => return None,
    };
    let count: f64 = text.strip_suffix(unit)?.parse().ok()?;
    SignedDuration::try_from_secs_f64(count * seconds).ok().filter(|expiry| !expiry.is_negative())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expiries_of_herdctl_are_parsed() {
        for (text, expected) in [
            ("24h", Some(86_400)),
            ("1.5d", Some(129_600)),
            ("2w", Some(1_209_600)),
            ("90s", Some(90)),
            ("", None),
            ("h", None),
            ("24", None),
            ("99999999999999999999w", None),
        ] {
            assert_eq!(expiry(text), expected.map(SignedDuration::from_secs), "{text}");
        }
    }

    #[test]
    fn the_session_policy_decides_the_session_key() {
        use SessionPolicy::{Continue, Fresh, PerChat, PerItem};
        let item = "file-1".parse().unwrap();
        for (policy, item, chat, expected) in [
            (Fresh, Some(&item), Some("slack C1"), None),
            (Continue, None, None, Some("agent")),
            (PerItem, None, Some("slack C1"), None),
            (PerItem, Some(&item), None, Some("item file-1")),
            (PerChat, Some(&item), None, None),
            (PerChat, None, Some("slack C1"), Some("chat slack C1")),
        ] {
            assert_eq!(policy.key(item, chat).as_deref(), expected, "{policy}");
        }
    }
}

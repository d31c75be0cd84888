//! The actor of an event: the person, token, sender of a webhook, opener of a login link, job or user of a chat that
//! requested it.

use core::net::IpAddr;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::chat_platform::ChatPlatform;
use crate::id::{JobId, TokenName};

/// The requester of an event. An event without an actor was caused by the fleet itself, for example by a schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "who", rename_all = "snake_case")]
pub enum Actor {
    /// A user of this machine, over the Unix socket, or on the command line while no daemon runs.
    Person {
        uid: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
    /// A program or a person with a token.
    Token {
        name: TokenName,
        from: IpAddr,
        /// True if the request came with a browser's cookie.
        #[serde(default)]
        browser: bool,
    },
    /// The sender of a webhook.
    Sender { from: IpAddr },
    /// The opener of a login link that `cowhand start` or `cowhand dashboard` printed.
    Link { from: IpAddr },
    /// An agent, from inside its running job.
    Job { job: JobId },
    /// A user of a chat platform.
    Chat {
        platform: ChatPlatform,
        /// Id of the user on the platform.
        id: String,
        /// Name that the user has chosen.
        name: String,
    },
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Person { name: Some(name), .. } => write!(f, "{name}"),
            Self::Person { uid, name: None } => write!(f, "user {uid}"),
            Self::Token { name, from, browser: false } => write!(f, "token {name} from {from}"),
            Self::Token { name, from, browser: true } => write!(f, "browser {name} from {from}"),
            Self::Sender { from } => write!(f, "webhook from {from}"),
            Self::Link { from } => write!(f, "link opened from {from}"),
            Self::Job { job } => write!(f, "{job}"),
            Self::Chat { platform, id, name } => write!(f, "{name} ({id}) on {platform}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actors_have_a_json_form_and_a_text_form() {
        for (json, text) in [
            (r#"{"who":"person","uid":1000,"name":"jo"}"#, "jo"),
            (r#"{"who":"person","uid":1000}"#, "user 1000"),
            (r#"{"who":"token","name":"ci","from":"10.0.0.7","browser":false}"#, "token ci from 10.0.0.7"),
            (r#"{"who":"token","name":"page-1","from":"::1","browser":true}"#, "browser page-1 from ::1"),
            (r#"{"who":"sender","from":"127.0.0.1"}"#, "webhook from 127.0.0.1"),
            (r#"{"who":"link","from":"127.0.0.1"}"#, "link opened from 127.0.0.1"),
            (r#"{"who":"job","job":"job-2026-01-05-000001"}"#, "job-2026-01-05-000001"),
            (r#"{"who":"chat","platform":"slack","id":"U1","name":"jo"}"#, "jo (U1) on slack"),
        ] {
            let actor: Actor = serde_json::from_str(json).unwrap();
            assert_eq!(actor.to_string(), text);
            assert_eq!(serde_json::to_string(&actor).unwrap(), json);
        }
    }
}

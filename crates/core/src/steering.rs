//! Steering messages: messages that people and programs send to a job that has not ended.
//!
//! ```text
//! pending ──▶ delivered    an attempt of the job has shown that its agent has the message
//!         ├─▶ next_turn    the job ended first; the message is in the prompt of the next job
//!         └─▶ dropped      the job was cancelled
//! ```

use std::fmt;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::actor::Actor;
use crate::id::JobId;
use crate::word::written_as;

/// Largest total size in bytes of the messages of a job that wait. A request for a prompt has about the same limit.
pub const MAX_WAITING_MESSAGE_BYTES: usize = 1 << 20;

/// Maximum number of steering messages of a job.
pub const MAX_STEERING_MESSAGES: u32 = 200;

/// A message to a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SteeringMessage {
    pub job: JobId,
    /// Number of the message in its job, from 1.
    pub number: u32,
    /// Id by which the agent's program confirms that it has the message.
    pub uuid: Uuid,
    /// Idempotency key of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    pub text: String,
    /// True if the current turn of the agent ends before the agent gets the message.
    pub interrupt: bool,
    /// Sender of the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Actor>,
    pub sent_at: Timestamp,
    pub route: SteeringRoute,
    #[serde(flatten)]
    pub state: SteeringState,
}

/// How the agent is to get a message, as it is known when the message is sent. A message for a running agent that the
/// agent does not take before its end becomes part of the next turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SteeringRoute {
    /// The agent gets the message while it runs.
    Live,
    /// The runtime of the agent takes no messages. When the job has ended, a new job gets the message as its prompt and
    /// continues the session, if there is one.
    NextTurn,
}

written_as! {
    SteeringRoute {
        Live = "live",
        NextTurn = "next_turn",
    }
    SteeringStatus {
        Pending = "pending",
        Delivered = "delivered",
        NextTurn = "next_turn",
        Dropped = "dropped",
    }
}

/// State of a steering message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum SteeringState {
    Pending,
    /// The output of this attempt shows that the agent has the message.
    Delivered {
        settled_at: Timestamp,
        attempt: u32,
    },
    /// The message is in the prompt of the job `next_job`.
    NextTurn {
        settled_at: Timestamp,
        next_job: JobId,
    },
    /// The job was cancelled, so the message was not delivered.
    Dropped {
        settled_at: Timestamp,
    },
}

/// State of a steering message, without the data of the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SteeringStatus {
    Pending,
    Delivered,
    NextTurn,
    Dropped,
}

impl SteeringState {
    pub const fn status(&self) -> SteeringStatus {
        match self {
            Self::Pending => SteeringStatus::Pending,
            Self::Delivered { .. } => SteeringStatus::Delivered,
            Self::NextTurn { .. } => SteeringStatus::NextTurn,
            Self::Dropped { .. } => SteeringStatus::Dropped,
        }
    }
}

impl SteeringMessage {
    /// Describes for people where the message is.
    pub fn whereabouts(&self) -> String {
        match (&self.state, self.route) {
            (SteeringState::Pending, SteeringRoute::Live) => "waits until the agent takes it".to_owned(),
            (SteeringState::Pending, SteeringRoute::NextTurn) => {
                "waits for the end of the job; the agent takes no messages while it runs".to_owned()
            }
            (SteeringState::Delivered { attempt, .. }, _) => {
                format!("delivered to the agent in attempt {attempt}")
            }
            (SteeringState::NextTurn { next_job, .. }, _) => format!("is in the prompt of {next_job}"),
            (SteeringState::Dropped { .. }, _) => "dropped, because the job was cancelled".to_owned(),
        }
    }

    /// Returns the sender for people.
    pub fn sender(&self) -> String {
        self.by.as_ref().map_or_else(|| "cowhand".to_owned(), Actor::to_string)
    }
}

impl fmt::Display for SteeringMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "message {} from {}", self.number, self.sender())
    }
}

/// Joins the texts of messages to the prompt of the next turn.
pub fn next_prompt<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    texts.into_iter().collect::<Vec<_>>().join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(route: SteeringRoute, state: SteeringState) -> SteeringMessage {
        SteeringMessage {
            job: "job-2026-01-05-000001".parse().unwrap(),
            number: 2,
            uuid: Uuid::nil(),
            key: None,
            text: "Use the other branch.".to_owned(),
            interrupt: false,
            by: Some(Actor::Person { uid: 7, name: Some("jo".to_owned()) }),
            sent_at: Timestamp::UNIX_EPOCH,
            route,
            state,
        }
    }

    #[test]
    fn people_read_where_a_message_is() {
        let at = Timestamp::UNIX_EPOCH;
        let next_job: JobId = "job-2026-01-05-000002".parse().unwrap();
        for (route, state, expected) in [
            (SteeringRoute::Live, SteeringState::Pending, "waits until the agent takes it"),
            (
                SteeringRoute::NextTurn,
                SteeringState::Pending,
                "waits for the end of the job; the agent takes no messages while it runs",
            ),
            (
                SteeringRoute::Live,
                SteeringState::Delivered { settled_at: at, attempt: 3 },
                "delivered to the agent in attempt 3",
            ),
            (
                SteeringRoute::Live,
                SteeringState::NextTurn { settled_at: at, next_job },
                "is in the prompt of job-2026-01-05-000002",
            ),
            (
                SteeringRoute::Live,
                SteeringState::Dropped { settled_at: at },
                "dropped, because the job was cancelled",
            ),
        ] {
            let message = message(route, state);
            assert_eq!(message.whereabouts(), expected);
            assert_eq!(message.to_string(), "message 2 from jo");
            let written = serde_json::to_value(&message).unwrap();
            assert_eq!(written["state"], message.state.status().as_str());
            assert_eq!(serde_json::from_value::<SteeringMessage>(written).unwrap(), message);
        }
    }

    #[test]
    fn the_next_prompt_has_the_messages_in_their_order() {
        assert_eq!(next_prompt(["one", "two\nlines"]), "one\n\ntwo\nlines");
    }
}

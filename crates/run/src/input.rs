//! Messages for running agents, and what an agent's output says about them.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A message for a running agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputMessage {
    /// Id by which the agent's program confirms the message.
    pub uuid: Uuid,
    pub text: String,
    /// True if the current turn of the agent ends first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupt: bool,
}

/// What a line of stdout says about the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InputEvent {
    /// The agent has the message with this id.
    Confirmed(Uuid),
    /// The agent has ended its turn, and waits for input.
    TurnEnded,
}

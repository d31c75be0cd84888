//! The form in which the keeper passes the prompt and messages to the standard input of an agent, and the lines of
//! stdout that show what the agent has done with them.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::claude;
use crate::acp;
use crate::input::{InputEvent, InputMessage};

/// Form of the input of a program that takes messages while it runs. Such a program reads one JSON object for each
/// line, and ends when its input is closed and nothing is left to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "format", rename_all = "snake_case")]
pub enum InputFormat {
    /// The input format `stream-json` of Claude Code.
    Claude {
        /// Id of the prompt. It is different in each attempt, because Claude ignores an id that is in its session.
        prompt: Uuid,
    },
    /// The input of cowhand's own client of the Agent Client Protocol.
    Acp,
}

impl InputFormat {
    /// Returns the line for the prompt.
    pub(crate) fn prompt(self, text: &str) -> String {
        match self {
            Self::Claude { prompt } => claude::input::user_line(prompt, text),
            Self::Acp => acp::input::prompt_line(text),
        }
    }

    /// Returns the lines for a message.
    pub(crate) fn message(self, message: &InputMessage) -> String {
        match self {
            Self::Claude { .. } => claude::input::message_lines(message),
            Self::Acp => acp::input::message_line(message),
        }
    }

    /// Reads a line of stdout. Returns `None` for lines that say nothing about the input.
    pub(crate) fn event(self, line: &str) -> Option<InputEvent> {
        match self {
            Self::Claude { .. } => claude::input::event(line),
            Self::Acp => acp::input::event(line),
        }
    }
}

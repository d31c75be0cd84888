//! Runtimes: how an agent is started and how its output is read. One file for each, and a line in [`Reader`].

pub mod claude;
pub mod command;
mod heard;
mod result_line;

use cowhand_core::job::{JobUsage, Outcome};
use cowhand_core::output::OutputMessage;
use serde::{Deserialize, Serialize};
use serde_json::Map;

use super::ending::Ending;
use claude::Claude;
use command::Command;

/// Turns an agent's lines into messages and remembers what its outcome depends on.
///
/// It can be written down at any time and goes on from there, so everything it remembers is small.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "runtime", rename_all = "snake_case")]
pub enum Reader {
    Command(Command),
    Claude(Claude),
}

/// What an attempt came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Finish {
    pub outcome: Outcome,
    pub usage: Option<JobUsage>,
    pub session_id: Option<String>,
}

impl Reader {
    pub fn command() -> Self {
        Self::Command(Command::default())
    }

    pub fn claude() -> Self {
        Self::Claude(Claude::default())
    }

    /// The longest line of stdout that is read whole. A cut line is no JSON any more, so where a line is all we
    /// hear of a tool or of the outcome it may be longer than what is kept of it.
    pub const fn line_cap(&self) -> usize {
        match self {
            Self::Command(_) => 1 << 20,
            Self::Claude(_) => 4 << 20,
        }
    }

    /// One line of stdout.
    pub fn read(&mut self, line: &str) -> Vec<OutputMessage> {
        match self {
            Self::Command(command) => vec![command.read(line)],
            Self::Claude(claude) => claude.read(line),
        }
    }

    /// One line of stderr, which no runtime gives a shape.
    pub fn read_stderr(&mut self, line: &str) -> OutputMessage {
        match self {
            Self::Command(command) => command.heard.stderr(line),
            Self::Claude(claude) => claude.heard.stderr(line),
        }
        system(Some("stderr"), line)
    }

    /// Known as soon as the agent has told it.
    pub fn session_id(&self) -> Option<&str> {
        match self {
            Self::Command(_) => None,
            Self::Claude(claude) => claude.session_id(),
        }
    }

    /// The process is gone and all of its lines were read.
    pub fn finish(self, ending: &Ending) -> Finish {
        let mut finish = match self {
            Self::Command(command) => command.finish(&ending.status),
            Self::Claude(claude) => claude.finish(&ending.status),
        };
        // An agent that is interrupted may well report success, and exit with 0.
        if let Some(how) = ending.stopped {
            finish.outcome = Outcome::Cancelled { how };
        }
        finish
    }
}

/// Output that has no better type.
pub(super) fn system(subtype: Option<&str>, content: &str) -> OutputMessage {
    OutputMessage::System {
        subtype: subtype.map(str::to_owned),
        content: Some(content.to_owned()),
        timestamp: None,
        extra: Map::new(),
    }
}

//! Runtimes: how an agent is started and how its output is read. One file for each, and a line in [`Reader`].

mod acp;
pub mod claude;
mod codex;
mod command;
pub mod description;
mod gemini;
mod json;
mod opencode;
mod output_record;
mod pieces;
mod record;
mod result_line;
mod session;

use cowhand_core::job::{ErrorKind, JobUsage, Outcome};
use cowhand_core::output::OutputMessage;
use cowhand_core::provider::reset;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use serde_json::Map;

use super::ending::{Ending, ExitStatus};
use crate::redact::Redactor;
use output_record::OutputRecord;
pub use session::SessionChoice;

/// What an attempt came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Finish {
    pub outcome: Outcome,
    pub usage: Option<JobUsage>,
    pub session_id: Option<String>,
    /// When the limit ends that it met, if it met one and somebody told.
    pub resets_at: Option<Timestamp>,
}

/// What each runtime's reader does.
trait Listen {
    /// One line of stdout.
    fn read(&mut self, line: &str) -> Vec<OutputMessage>;

    fn heard(&mut self) -> &mut OutputRecord;

    /// Known as soon as the agent has told it.
    fn session_id(&self) -> Option<&str>;

    /// Nothing more will come: what it has not told yet, because it was not whole.
    fn rest(&mut self) -> Vec<OutputMessage> {
        Vec::new()
    }

    /// For a reader that joins what came in several lines: no line by itself held a secret that was cut in two.
    fn under(&mut self, _redactor: &Redactor) {}

    /// What it has used until now; none if this runtime tells that only when it ends, or has told nothing yet.
    fn usage(&self) -> Option<JobUsage> {
        None
    }

    /// The process is gone and all of its lines were read.
    fn finish(self, status: &ExitStatus) -> Finish
    where
        Self: Sized;

    /// The longest line of stdout that is read whole. A cut line is no JSON any more, so where a line is all we
    /// hear of a tool or of the outcome it may be longer than what is kept of it.
    fn line_cap(&self) -> usize {
        4 << 20
    }
}

macro_rules! readers {
    ($($runtime:ident => $reader:ty,)+) => {
        /// Turns an agent's lines into messages and remembers what its outcome depends on.
        ///
        /// It can be written down at any time and goes on from there, so everything it remembers is small.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "runtime", rename_all = "snake_case")]
        pub enum Reader {
            $($runtime($reader),)+
        }

        impl Reader {
            fn listener(&self) -> &dyn Listen {
                match self { $(Self::$runtime(reader) => reader,)+ }
            }

            fn listener_mut(&mut self) -> &mut dyn Listen {
                match self { $(Self::$runtime(reader) => reader,)+ }
            }

            fn finished(self, status: &ExitStatus) -> Finish {
                match self { $(Self::$runtime(reader) => reader.finish(status),)+ }
            }
        }
    };
}

readers! {
    Command => command::CommandReader,
    Claude => claude::Claude,
    Codex => codex::Codex,
    Gemini => gemini::Gemini,
    Opencode => opencode::Opencode,
    Acp => acp::Acp,
}

impl Reader {
    pub fn command() -> Self {
        Self::Command(command::CommandReader::default())
    }

    pub fn claude() -> Self {
        Self::Claude(claude::Claude::default())
    }

    pub fn codex() -> Self {
        Self::Codex(codex::Codex::default())
    }

    pub fn gemini() -> Self {
        Self::Gemini(gemini::Gemini::default())
    }

    pub fn opencode() -> Self {
        Self::Opencode(opencode::Opencode::default())
    }

    pub fn acp() -> Self {
        Self::Acp(acp::Acp::default())
    }

    pub fn line_cap(&self) -> usize {
        self.listener().line_cap()
    }

    /// One line of stdout.
    pub fn read(&mut self, line: &str) -> Vec<OutputMessage> {
        self.listener_mut().read(line)
    }

    /// One line of stderr, which no runtime gives a shape.
    pub fn read_stderr(&mut self, line: &str) -> OutputMessage {
        self.listener_mut().heard().stderr(line);
        system(Some("stderr"), line)
    }

    /// Known as soon as the agent has told it.
    pub fn session_id(&self) -> Option<&str> {
        self.listener().session_id()
    }

    /// What it joins is hidden as the lines were.
    pub fn under(&mut self, redactor: &Redactor) {
        self.listener_mut().under(redactor);
    }

    /// Nothing more will come: what it has not told yet, because it was not whole.
    pub fn rest(&mut self) -> Vec<OutputMessage> {
        self.listener_mut().rest()
    }

    /// What the agent has spent until now, as far as it tells.
    pub fn usage(&self) -> Option<JobUsage> {
        self.listener().usage().map(JobUsage::bounded)
    }

    /// Whether the agent has said how its work ended.
    pub fn has_result(&mut self) -> bool {
        self.listener_mut().heard().result.is_some()
    }

    /// As far as the agent itself called them, and not a subagent.
    pub fn tool_calls(&mut self) -> u64 {
        self.listener_mut().heard().tools
    }

    /// The process is gone and all of its lines were read.
    pub fn finish(self, ending: &Ending) -> Finish {
        let mut finish = self.finished(&ending.status);
        finish.usage = finish.usage.map(JobUsage::bounded);
        // An agent that is interrupted may well report success, and exit with 0.
        if let Some(how) = ending.stopped {
            finish.outcome = Outcome::Cancelled { how };
        }
        match &finish.outcome {
            Outcome::Failed { error, .. } if error.kind == ErrorKind::RateLimited => {
                let told = || reset(&error.message, ending.at, &TimeZone::system());
                finish.resets_at = finish.resets_at.or_else(told);
            }
            _ => finish.resets_at = None,
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

//! Runtimes: how an agent is started and how its output is read. Each runtime has one file or folder and one variant of
//! [`Reader`].

mod acp;
pub mod claude;
mod codex;
mod command;
pub mod description;
mod gemini;
pub mod input;
mod json;
mod opencode;
mod output_record;
mod pieces;
mod result_line;
mod session;
mod session_file;
mod steering;

use cowhand_core::job::{ErrorKind, JobUsage, Outcome};
use cowhand_core::output::OutputMessage;
use cowhand_core::provider::{WindowReport, reset};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::ending::{Ending, ExitStatus};
use crate::redact::Redactor;
use output_record::OutputRecord;
pub use session::SessionChoice;
use steering::Confirmed;
pub use steering::KnownMessages;

/// Maximum number of models whose usage a reader counts. Their usage is part of every checkpoint.
const MAX_MODELS: usize = 100;

/// Result of an attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct Finish {
    pub outcome: Outcome,
    pub usage: Option<JobUsage>,
    pub session_id: Option<String>,
    /// End of the usage limit that was reached, if known.
    pub resets_at: Option<Timestamp>,
}

/// Reader of a runtime.
trait OutputReader {
    /// Reads one line of stdout.
    fn read(&mut self, line: &str) -> Vec<OutputMessage>;

    /// Reads one line of stdout if it is only text, which becomes a message as it is. Returns false if the line has to
    /// be read with [`Self::read`].
    fn read_text(&mut self, _line: &str) -> bool {
        false
    }

    fn output(&mut self) -> &mut OutputRecord;

    /// Returns the session id as soon as the agent has stated it.
    fn session_id(&self) -> Option<&str>;

    /// Returns the text and the tool calls that are still incomplete after the last line, as messages.
    fn rest(&mut self) -> Vec<OutputMessage> {
        Vec::new()
    }

    /// Sets the redactor of a reader that joins pieces of text from several lines. The tailer redacts the lines before
    /// the reader joins the pieces, so the tailer does not find a secret that is split over several pieces.
    fn set_redactor(&mut self, _redactor: &Redactor) {}

    /// Returns the confirmed messages of a reader whose program takes messages.
    fn confirmed(&self) -> Option<&Confirmed> {
        None
    }

    fn confirmed_mut(&mut self) -> Option<&mut Confirmed> {
        None
    }

    /// Returns the usage so far, or `None` if the agent has not reported any yet.
    fn usage(&self) -> Option<JobUsage> {
        None
    }

    /// Returns the last report of the agent about each usage window of its provider.
    fn windows(&mut self) -> Vec<WindowReport> {
        self.output().windows.clone()
    }

    /// Returns the result after the process has ended and all lines are read.
    fn finish(self, status: &ExitStatus) -> Finish
    where
        Self: Sized;

    /// Returns the maximum length in bytes of a line that is read whole. A cut line is not valid JSON. A line may be
    /// the only source of a tool call or the outcome, so this limit is larger than the length that is stored.
    fn line_cap(&self) -> usize {
        4 << 20
    }
}

macro_rules! readers {
    ($($runtime:ident => $reader:ty,)+) => {
        /// The reader of an attempt: turns output lines into messages, and keeps the state from which the outcome is
        /// computed.
        ///
        /// Every checkpoint stores this state, so it has to be small.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "runtime", rename_all = "snake_case")]
        pub enum Reader {
            $($runtime($reader),)+
        }

        impl Reader {
            fn output_reader(&self) -> &dyn OutputReader {
                match self { $(Self::$runtime(reader) => reader,)+ }
            }

            fn output_reader_mut(&mut self) -> &mut dyn OutputReader {
                match self { $(Self::$runtime(reader) => reader,)+ }
            }

            fn finish_reader(self, status: &ExitStatus) -> Finish {
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
        self.output_reader().line_cap()
    }

    /// Reads one line of stdout.
    pub fn read(&mut self, line: &str) -> Vec<OutputMessage> {
        self.output_reader_mut().read(line)
    }

    /// Reads one line of stdout if it is only text, which becomes a message as it is. Returns false if the line has to
    /// be read with [`Self::read`].
    pub fn read_text(&mut self, line: &str) -> bool {
        self.output_reader_mut().read_text(line)
    }

    /// The `subtype` of the messages of stderr.
    pub const STDERR: &str = "stderr";

    /// Reads one line of stderr, which is only text in every runtime.
    pub fn read_stderr(&mut self, line: &str) {
        self.output_reader_mut().output().stderr(line);
    }

    /// Returns the session id as soon as the agent has stated it.
    pub fn session_id(&self) -> Option<&str> {
        self.output_reader().session_id()
    }

    /// Sets the redactor for text that the reader joins from several lines.
    pub fn set_redactor(&mut self, redactor: &Redactor) {
        self.output_reader_mut().set_redactor(redactor);
    }

    /// Sets the messages to the job that the agent may confirm.
    pub fn set_messages(&mut self, known: &KnownMessages) {
        if let Some(confirmed) = self.output_reader_mut().confirmed_mut() {
            confirmed.set_known(known.clone());
        }
    }

    /// Returns the ids of the messages that the agent has confirmed.
    pub fn confirmed_messages(&self) -> &[Uuid] {
        self.output_reader().confirmed().map_or(&[], Confirmed::messages)
    }

    /// Returns the text and the tool calls that are still incomplete after the last line, as messages.
    pub fn rest(&mut self) -> Vec<OutputMessage> {
        self.output_reader_mut().rest()
    }

    /// Returns the usage so far, or `None` if the agent has not reported any yet.
    pub fn usage(&self) -> Option<JobUsage> {
        self.output_reader().usage().map(JobUsage::bounded)
    }

    /// Returns the last report of the agent about each usage window of its provider.
    pub fn windows(&mut self) -> Vec<WindowReport> {
        self.output_reader_mut().windows()
    }

    /// Returns true if a report about a usage window has no time yet.
    pub(crate) fn has_undated_window(&mut self) -> bool {
        self.output_reader_mut().output().has_undated_window()
    }

    /// Sets the time of the reports about usage windows that have none.
    pub(crate) fn date_windows(&mut self, at: Timestamp) {
        self.output_reader_mut().output().date_windows(at);
    }

    /// Returns true if the agent has stated the result of its work.
    pub fn has_result(&mut self) -> bool {
        self.output_reader_mut().output().result.is_some()
    }

    /// Returns the number of tool calls of the agent itself, without subagents.
    pub fn tool_calls(&mut self) -> u64 {
        self.output_reader_mut().output().tools
    }

    /// Returns the result after the process has ended and all lines are read.
    pub fn finish(self, ending: &Ending) -> Finish {
        let mut finish = self.finish_reader(&ending.status);
        finish.usage = finish.usage.map(JobUsage::bounded);
        // An interrupted agent may report success and exit with 0.
        if let Some(how) = ending.stopped {
            finish.outcome = Outcome::Cancelled { how };
        }
        match &finish.outcome {
            Outcome::Failed { error, .. } if error.kind == ErrorKind::RateLimited => {
                let from_message = || reset(&error.message, ending.at, &TimeZone::system());
                finish.resets_at = finish.resets_at.or_else(from_message);
            }
            _ => finish.resets_at = None,
        }
        finish
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An upgraded daemon reads the checkpoints of an older version. So the keys in a checkpoint must not change, even
    /// where the field has another name by now.
    #[test]
    fn checkpoints_keep_the_names_of_their_fields() {
        let piece = r#"{"type":"stream_event","event":{"index":0,"delta":{"text":"a"}}}"#;
        let mut claude = Reader::claude();
        claude.read(piece);
        for (reader, keys) in [
            (Reader::command(), &["said"][..]),
            (claude, &["said", "word"]),
            (Reader::codex(), &["said"]),
            (Reader::gemini(), &["said", "saying"]),
            (Reader::opencode(), &["said"]),
            (Reader::acp(), &["said", "asked", "words", "goes_on", "this"]),
        ] {
            let written = serde_json::to_string(&reader).unwrap();
            assert!(written.contains(r#""heard":{"#), "{written}");
            for key in keys {
                assert!(written.contains(&format!("\"{key}\":")), "{key} in {written}");
            }
            assert_eq!(serde_json::from_str::<Reader>(&written).unwrap(), reader);
        }
    }
}

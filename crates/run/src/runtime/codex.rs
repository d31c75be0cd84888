//! The runtime `codex`: `codex exec --json`.
//!
//! The lines of Codex report items that start and complete. A tool call is one item and becomes two messages. Codex
//! calls a session a thread. The usage at the end of a turn is the usage of the whole thread, and a forked thread
//! includes the usage of its origin, so the usage before this attempt is subtracted.

mod items;
mod launch;
mod rollout;

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;

use cowhand_core::job::{JobUsage, ModelUsage};
use cowhand_core::output::OutputMessage;
use cowhand_core::provider::WindowReport;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::json::{Fields, count, object, rest, short_text, take_text, text, under_line};
use super::output_record::OutputRecord;
use super::result_line::ResultLine;
use super::{Finish, OutputReader};
use crate::ending::ExitStatus;
pub(super) use launch::DESCRIPTION;

/// Maximum number of remembered tool calls. An agent makes fewer concurrent calls.
const MAX_OPEN_TOOLS: usize = 64;

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Codex {
    #[serde(rename = "heard")]
    output: OutputRecord,
    session_id: Option<String>,
    /// Configured model; Codex does not state which model answers.
    model: Option<String>,
    /// Usage of the thread before this attempt.
    before: Tokens,
    /// Ids of the tool calls that have not completed.
    running: VecDeque<String>,
    turns: u64,
    /// Folder of Codex's records, which state the usage of an unfinished turn.
    home: Option<PathBuf>,
}

/// Tokens of a thread since its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
struct Tokens {
    /// Input tokens, including those read from the cache or written to it.
    input: u64,
    cached: u64,
    written: u64,
    output: u64,
}

impl Tokens {
    fn read(usage: &Value) -> Self {
        Self {
            input: count(usage, "input_tokens"),
            cached: count(usage, "cached_input_tokens"),
            written: count(usage, "cache_write_input_tokens"),
            output: count(usage, "output_tokens"),
        }
    }

    /// Returns the usage since `before`. Differences below zero count as 0, because a truncated thread may state less
    /// than before.
    const fn since(self, before: Self) -> ModelUsage {
        let input = self.input.saturating_sub(before.input);
        let cached = self.cached.saturating_sub(before.cached);
        let written = self.written.saturating_sub(before.written);
        ModelUsage {
            input_tokens: input.saturating_sub(cached).saturating_sub(written),
            output_tokens: self.output.saturating_sub(before.output),
            cache_creation_input_tokens: written,
            cache_read_input_tokens: cached,
            cost_usd: None,
        }
    }
}

impl OutputReader for Codex {
    fn read(&mut self, line: &str) -> Vec<OutputMessage> {
        if line.trim().is_empty() {
            return Vec::new();
        }
        let Some(fields) = object(line) else {
            self.output.stdout(line);
            return vec![OutputMessage::text(None, line)];
        };
        let messages = self.object(fields);
        for message in &messages {
            self.output.message(message);
        }
        messages
    }

    fn output(&mut self) -> &mut OutputRecord {
        &mut self.output
    }

    fn session_id(&self) -> Option<&str> {
        self.session_id.as_deref()
    }

    fn usage(&self) -> Option<JobUsage> {
        let reported = self.output.result.as_ref().map(|result| result.usage.clone());
        reported.filter(|usage| !usage.per_model.is_empty()).or_else(|| self.recorded())
    }

    fn windows(&mut self) -> Vec<WindowReport> {
        let record = self.home.as_deref().zip(self.session_id.as_deref());
        record.map(|(home, thread)| rollout::windows(home, thread)).unwrap_or_default()
    }

    fn finish(self, status: &ExitStatus) -> Finish {
        let outcome = self.output.outcome(status, ", and no turn was completed");
        let usage = self.usage();
        // The end of the usage limit is taken from the record, because the message states only the minute.
        let record = self.home.as_deref().zip(self.session_id.as_deref());
        let resets_at = record.and_then(|(home, thread)| rollout::resets_at(home, thread));
        Finish { outcome, usage, session_id: self.session_id, resets_at }
    }
}

impl Codex {
    fn object(&mut self, mut fields: Fields) -> Vec<OutputMessage> {
        let kind = text(&fields, "type").unwrap_or_default().to_owned();
        match kind.as_str() {
            "thread.started" => {
                self.session_id =
                    short_text(&fields, "thread_id").map(str::to_owned).or(self.session_id.take());
                vec![line_message("init", None, fields)]
            }
            "item.started" | "item.updated" | "item.completed" => self.item(&kind, fields),
            "turn.completed" => vec![self.completed(fields)],
            "turn.failed" => vec![self.failed(fields)],
            "error" => {
                let message = text(&fields, "message").unwrap_or_default().to_owned();
                // Codex continues after these messages, so they are not errors of the job.
                if message.starts_with("Reconnecting") {
                    take_text(&mut fields, "message");
                    return vec![line_message("api_retry", Some(message), fields)];
                }
                take_text(&mut fields, "message");
                fields.shift_remove("type");
                vec![OutputMessage::Error {
                    message,
                    code: None,
                    stack: None,
                    timestamp: None,
                    extra: rest(fields),
                }]
            }
            "turn.started" => vec![line_message("turn_started", None, fields)],
            _ => vec![OutputMessage::System {
                subtype: Some("unknown_type".to_owned()),
                content: None,
                timestamp: None,
                extra: under_line(Value::Object(fields)),
            }],
        }
    }

    /// Returns the usage of this attempt as Codex's record states it, for a turn that is not finished.
    fn recorded(&self) -> Option<JobUsage> {
        let used = rollout::used(self.home.as_deref()?, self.session_id.as_deref()?).since(self.before);
        (!used.is_unused()).then(|| self.usage_of(used))
    }

    fn usage_of(&self, used: ModelUsage) -> JobUsage {
        let model = self.model.clone().unwrap_or_else(|| "default".to_owned());
        JobUsage { per_model: BTreeMap::from([(model, used)]), ..JobUsage::default() }
    }

    fn completed(&mut self, fields: Fields) -> OutputMessage {
        self.turns += 1;
        let spent = fields.get("usage").map(|usage| Tokens::read(usage).since(self.before));
        let model = self.model.clone().unwrap_or_else(|| "default".to_owned());
        let usage = JobUsage {
            per_model: spent.map(|spent| BTreeMap::from([(model, spent)])).unwrap_or_default(),
            num_turns: Some(self.turns),
            ..JobUsage::default()
        };
        self.output.result = Some(ResultLine::new(None, usage));
        line_message("result", None, fields)
    }

    fn failed(&mut self, mut fields: Fields) -> OutputMessage {
        let error = fields.get_mut("error").and_then(Value::as_object_mut);
        let message = error.and_then(|error| take_text(error, "message"));
        let message = message.unwrap_or_else(|| "the turn failed, and Codex gave no reason".to_owned());
        let status = status_in(&message);
        self.output.result = Some(ResultLine::new(Some((message.clone(), status)), JobUsage::default()));
        let code = Some(status.map_or_else(|| "turn_failed".to_owned(), |status| status.to_string()));
        fields.shift_remove("type");
        fields.retain(|_, value| value.as_object().is_none_or(|object| !object.is_empty()));
        OutputMessage::Error { message, code, stack: None, timestamp: None, extra: rest(fields) }
    }
}

fn line_message(subtype: &str, content: Option<String>, line: Fields) -> OutputMessage {
    let subtype = Some(subtype.to_owned());
    OutputMessage::System { subtype, content, timestamp: None, extra: under_line(Value::Object(line)) }
}

/// Returns the HTTP status that a message states, for example in `unexpected status 401 Unauthorized` or in the
/// server's JSON.
fn status_in(message: &str) -> Option<u64> {
    let number = |after: &str| {
        let start = message.find(after)? + after.len();
        let digits = message[start..].trim_start();
        digits.get(..3)?.parse().ok().filter(|status| (400..600).contains(status))
    };
    number("status ").or_else(|| number("status: ")).or_else(|| number("\"code\":"))
}

#[cfg(test)]
mod tests;

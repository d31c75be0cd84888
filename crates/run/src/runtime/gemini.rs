//! The runtime `gemini`, the Gemini CLI: `gemini --output-format stream-json`.
//!
//! The text of the agent arrives only in parts. The reader passes on the parts, then the whole text as one message.

mod chat;
mod launch;

use std::collections::{BTreeMap, HashMap};

use cowhand_core::job::{JobUsage, ModelUsage};
use cowhand_core::output::OutputMessage;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::json::{Fields, count, object, rest, short_text, take_text, text, under_line};
use super::output_record::OutputRecord;
use super::pieces::{Pieces, TextRedactor};
use super::result_line::ResultLine;
use super::{Finish, OutputReader};
use crate::ending::ExitStatus;
use crate::redact::Redactor;
pub(super) use chat::ChatRecord;
pub(super) use launch::DESCRIPTION;

/// Maximum size of the text so far, which is part of every checkpoint. A longer text becomes several messages.
const MAX_TEXT_BYTES: usize = 32 << 10;

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Gemini {
    #[serde(rename = "heard")]
    output: OutputRecord,
    session_id: Option<String>,
    /// Text of the agent since the last line of another kind, without the part that is held back.
    #[serde(rename = "saying")]
    text_so_far: String,
    pieces: Pieces,
    chat: ChatRecord,
    #[serde(skip)]
    redactor: TextRedactor,
}

impl OutputReader for Gemini {
    fn read(&mut self, line: &str) -> Vec<OutputMessage> {
        if line.trim().is_empty() {
            return Vec::new();
        }
        let Some(mut fields) = object(line) else {
            self.output.stdout(line);
            return vec![OutputMessage::text(None, line)];
        };
        let timestamp = text(&fields, "timestamp").and_then(|time| time.parse().ok());
        if timestamp.is_some() {
            fields.shift_remove("timestamp");
        }
        let kind = text(&fields, "type").unwrap_or_default().to_owned();
        let piece = kind == "message"
            && text(&fields, "role") == Some("assistant")
            && fields.get("delta") == Some(&Value::Bool(true));
        let mut messages = Vec::new();
        if !piece {
            messages.extend(self.whole(timestamp));
            self.chat.read_new(self.session_id.as_deref());
        }
        messages.push(self.object(&kind, fields, timestamp));
        if self.text_so_far.len() > MAX_TEXT_BYTES {
            messages.extend(self.assembled(timestamp));
        }
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

    fn set_redactor(&mut self, redactor: &Redactor) {
        self.redactor = TextRedactor(redactor.clone());
    }

    fn rest(&mut self) -> Vec<OutputMessage> {
        // The last text is incomplete if the agent was ended while it wrote.
        let messages = self.whole(None);
        for message in &messages {
            self.output.message(message);
        }
        messages
    }

    fn usage(&self) -> Option<JobUsage> {
        let reported = self.output.result.as_ref().map(|result| &result.usage);
        reported.filter(|usage| !usage.per_model.is_empty()).cloned().or_else(|| self.chat.usage())
    }

    fn finish(mut self, status: &ExitStatus) -> Finish {
        self.chat.read_new(self.session_id.as_deref());
        self.rest();
        if let (Some(result), ExitStatus::Code { code }) = (&mut self.output.result, status) {
            result.set_status(status_of_exit(*code));
        }
        let outcome = self.output.outcome(status, ", and no result line came");
        let usage = self.usage();
        Finish { outcome, usage, session_id: self.session_id, resets_at: None }
    }
}

impl Gemini {
    fn with_chat_record(environment: &HashMap<String, String>) -> Self {
        Self { chat: ChatRecord::starting_now(environment), ..Self::default() }
    }

    /// Returns a partial message with the text that was held back, and then a message with the whole text so far.
    fn whole(&mut self, timestamp: Option<Timestamp>) -> Vec<OutputMessage> {
        let rest = self.pieces.rest(&self.redactor);
        self.text_so_far += &rest;
        assistant_message(rest, Some(true), timestamp).into_iter().chain(self.assembled(timestamp)).collect()
    }

    /// Returns the text so far as one message, without the part that is held back.
    fn assembled(&mut self, timestamp: Option<Timestamp>) -> Option<OutputMessage> {
        assistant_message(std::mem::take(&mut self.text_so_far), None, timestamp)
    }

    fn object(&mut self, kind: &str, mut fields: Fields, timestamp: Option<Timestamp>) -> OutputMessage {
        match kind {
            "init" => {
                self.session_id =
                    short_text(&fields, "session_id").map(str::to_owned).or(self.session_id.take());
                line_message("init", None, fields, timestamp)
            }
            "message" => self.message(fields, timestamp),
            "tool_use" => {
                fields.shift_remove("type");
                let tool_name = take_text(&mut fields, "tool_name").unwrap_or_else(|| "unknown".to_owned());
                let tool_use_id = take_text(&mut fields, "tool_id");
                let input = fields.shift_remove("parameters");
                OutputMessage::ToolUse { tool_name, tool_use_id, input, timestamp, extra: rest(fields) }
            }
            "tool_result" => tool_result(fields, timestamp),
            "error" => {
                let message = take_text(&mut fields, "message").unwrap_or_default();
                fields.shift_remove("type");
                if text(&fields, "severity") == Some("warning") {
                    return OutputMessage::System {
                        subtype: Some("warning".to_owned()),
                        content: Some(message),
                        timestamp,
                        extra: rest(fields),
                    };
                }
                OutputMessage::Error { message, code: None, stack: None, timestamp, extra: rest(fields) }
            }
            "result" => self.result(fields, timestamp),
            _ => line_message("unknown_type", None, fields, timestamp),
        }
    }

    fn message(&mut self, mut fields: Fields, timestamp: Option<Timestamp>) -> OutputMessage {
        let mut content = take_text(&mut fields, "content");
        if text(&fields, "role") != Some("assistant") {
            let subtype = Some("user_input".to_owned());
            fields.shift_remove("type");
            fields.shift_remove("role");
            return OutputMessage::System { subtype, content, timestamp, extra: rest(fields) };
        }
        let partial = (fields.shift_remove("delta") == Some(Value::Bool(true))).then_some(true);
        if partial == Some(true) {
            let piece = self.pieces.add(content.as_deref().unwrap_or_default(), &self.redactor);
            self.text_so_far += &piece;
            content = Some(piece);
        }
        fields.shift_remove("type");
        fields.shift_remove("role");
        OutputMessage::Assistant { content, partial, usage: None, timestamp, extra: rest(fields) }
    }

    fn result(&mut self, fields: Fields, timestamp: Option<Timestamp>) -> OutputMessage {
        let usage = JobUsage {
            per_model: fields
                .get("stats")
                .and_then(|stats| stats.get("models"))
                .map(per_model)
                .unwrap_or_default(),
            ..JobUsage::default()
        };
        let error = fields.get("error").and_then(Value::as_object);
        let failed = error.is_some() || text(&fields, "status").is_some_and(|status| status != "success");
        if !failed {
            self.output.result = Some(ResultLine::new(None, usage));
            return line_message("result", None, fields, timestamp);
        }
        let message = error.and_then(|error| text(error, "message")).map(readable_error);
        let message = message.unwrap_or_else(|| "the turn failed, and Gemini gave no reason".to_owned());
        let status = error.and_then(|error| text(error, "message")).and_then(status_in);
        let kind = error.and_then(|error| text(error, "type")).filter(|kind| *kind != "unknown");
        let code = status.map(|status| status.to_string()).or_else(|| kind.map(str::to_owned));
        self.output.result = Some(ResultLine::new(Some((message.clone(), status)), usage));
        OutputMessage::Error {
            message,
            code,
            stack: None,
            timestamp,
            extra: under_line(Value::Object(fields)),
        }
    }
}

/// Returns a message with the text; `None` if the text is empty.
fn assistant_message(
    text: String,
    partial: Option<bool>,
    timestamp: Option<Timestamp>,
) -> Option<OutputMessage> {
    let content = (!text.is_empty()).then_some(text)?;
    let (content, usage, extra) = (Some(content), None, Fields::new());
    Some(OutputMessage::Assistant { content, partial, usage, timestamp, extra })
}

fn tool_result(mut fields: Fields, timestamp: Option<Timestamp>) -> OutputMessage {
    fields.shift_remove("type");
    let tool_use_id = take_text(&mut fields, "tool_id");
    let success = Some(text(&fields, "status") == Some("success"));
    fields.shift_remove("status");
    let result = fields.shift_remove("output");
    let error = fields.get("error").and_then(|error| text(error.as_object()?, "message")).map(str::to_owned);
    OutputMessage::ToolResult { tool_use_id, result, success, error, timestamp, extra: rest(fields) }
}

fn line_message(
    subtype: &str,
    content: Option<String>,
    line: Fields,
    timestamp: Option<Timestamp>,
) -> OutputMessage {
    let subtype = Some(subtype.to_owned());
    OutputMessage::System { subtype, content, timestamp, extra: under_line(Value::Object(line)) }
}

fn per_model(models: &Value) -> BTreeMap<String, ModelUsage> {
    let models = models.as_object().into_iter().flatten().filter(|(model, _)| model.len() <= 200);
    let used = models.take(100).map(|(model, counts)| {
        // Tokens of thinking are only in the total; their price is that of output.
        let generated = count(counts, "total_tokens").saturating_sub(count(counts, "input_tokens"));
        let used = ModelUsage {
            input_tokens: count(counts, "input"),
            output_tokens: count(counts, "output_tokens").max(generated),
            cache_creation_input_tokens: 0,
            cache_read_input_tokens: count(counts, "cached"),
            cost_usd: None,
        };
        (model.clone(), used)
    });
    // Gemini also lists models whose requests all failed. They are left out.
    used.filter(|(_, used)| !used.is_unused()).collect()
}

/// Returns the HTTP status for the exit code of a rate limit or an overloaded server. Gemini exits with the HTTP status
/// of a failed request, and the exit code is the lowest byte of that status. Gemini uses these four exit codes for
/// nothing else.
const fn status_of_exit(code: i32) -> Option<u64> {
    match code {
        173 => Some(429),
        247 => Some(503),
        248 => Some(504),
        17 => Some(529),
        _ => None,
    }
}

/// Returns the server's answer inside an error message; `None` if there is no JSON.
fn answer_in(message: &str) -> Option<Value> {
    let inner = message.trim().strip_prefix("[API Error:")?.trim().trim_end_matches(']');
    serde_json::from_str(inner).ok()
}

fn status_in(message: &str) -> Option<u64> {
    answer_in(message)?.get("error")?.get("code")?.as_u64()
}

/// Returns the reason inside the server's answer, or the whole error message if there is no answer.
fn readable_error(message: &str) -> String {
    let inner = answer_in(message).unwrap_or_else(|| json!({}));
    let reason = inner.get("error").and_then(|error| error.get("message")).and_then(Value::as_str);
    reason.unwrap_or(message).to_owned()
}

#[cfg(test)]
mod tests {
    use crate::runtime::Reader;

    use super::*;

    #[test]
    fn pieces_become_one_message_before_the_next_message() {
        let mut reader = Reader::gemini();
        let piece = |text: &str| {
            format!(r#"{{"type":"message","role":"assistant","content":"{text}","delta":true}}"#)
        };
        let tool = r#"{"type":"tool_use","tool_name":"sh","tool_id":"t","parameters":{"command":"ls"}}"#;
        let messages: Vec<_> =
            [&piece("How "), &piece("now"), tool].into_iter().flat_map(|line| reader.read(line)).collect();
        assert_eq!(
            serde_json::to_value(&messages).unwrap(),
            json!([
                {"type": "assistant", "content": "How ", "partial": true},
                {"type": "assistant", "content": "now", "partial": true},
                {"type": "assistant", "content": "How now"},
                {"type": "tool_use", "tool_name": "sh", "tool_use_id": "t", "input": {"command": "ls"}},
            ])
        );
        // Text of an agent that was ended while it wrote is not lost.
        reader.read(&piece("Go"));
        reader.read(&piece("od"));
        let Reader::Gemini(gemini) = reader else { panic!() };
        let outcome = gemini.finish(&ExitStatus::Code { code: 144 }).outcome;
        let cowhand_core::job::Outcome::Failed { error, summary, .. } = outcome else {
            panic!("{outcome:?}")
        };
        assert_eq!(
            (error.message.as_str(), summary.as_deref()),
            ("exit code 144, and no result line came", Some("Good"))
        );
    }

    #[test]
    fn the_memory_for_a_long_answer_is_bounded() {
        let mut gemini = Gemini::default();
        let piece =
            json!({"type": "message", "role": "assistant", "content": "x".repeat(1000), "delta": true})
                .to_string();
        let mut whole = 0;
        for _ in 0..100 {
            let messages = gemini.read(&piece);
            whole += messages
                .iter()
                .filter(|message| matches!(message, OutputMessage::Assistant { partial: None, .. }))
                .count();
            assert!(gemini.text_so_far.len() <= MAX_TEXT_BYTES);
        }
        assert_eq!(whole, 3);
    }

    #[test]
    fn unknown_lines_are_kept() {
        for (line, expected) in [
            ("  ", json!([])),
            (
                "Loaded cached credentials.",
                json!([{"type": "system", "content": "Loaded cached credentials."}]),
            ),
            (
                r#"{"type":"hologram","of":"a cow"}"#,
                json!([{"type": "system", "subtype": "unknown_type", "line": {"type": "hologram", "of": "a cow"}}]),
            ),
            (
                r#"{"type":"error","severity":"warning","message":"slow"}"#,
                json!([{"type": "system", "subtype": "warning", "content": "slow", "line": {"severity": "warning"}}]),
            ),
            (
                r#"{"type":"tool_result","tool_id":"t","status":"error","error":{"type":"x","message":"no"}}"#,
                json!([{"type": "tool_result", "tool_use_id": "t", "success": false, "error": "no",
                        "line": {"error": {"type": "x", "message": "no"}}}]),
            ),
        ] {
            let messages = Reader::gemini().read(line);
            assert_eq!(serde_json::to_value(messages).unwrap(), expected, "{line}");
        }
    }
}

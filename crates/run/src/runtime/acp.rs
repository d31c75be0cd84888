//! The runtime `acp`: any agent that speaks the Agent Client Protocol (ACP), through cowhand's client
//! (`run/src/acp`).
//!
//! This reader gets the client's output: the lines of the agent unchanged, and lines of the client about requests and
//! decisions. The reader joins chunks of text. An agent that loads a session repeats the history of the session; the
//! reader drops the history and reports the number of dropped updates.

mod launch;
mod message;
mod tools;
mod usage;

use cowhand_core::job::{ErrorKind, FailReason, JobError, JobUsage, Outcome};
use cowhand_core::output::OutputMessage;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::json::{Fields, object, short_text, take_object, take_text, text, under_line};
use super::output_record::{OutputRecord, one_line};
use super::pieces::TextRedactor;
use super::result_line::ResultLine;
use super::steering::Confirmed;
use super::{Finish, OutputReader};
use crate::acp::{CLIENT_KEY, FAILED, MESSAGE, NOTE, PERMISSION, REQUEST, TURN_ENDED};
use crate::ending::ExitStatus;
use crate::redact::Redactor;
pub(super) use launch::DESCRIPTION;
use message::MessageChunks;
use tools::Tools;
use usage::AcpUsage;

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Acp {
    #[serde(rename = "heard")]
    output: OutputRecord,
    session_id: Option<String>,
    /// Session that the attempt resumes, until the agent confirms it.
    resumes: Option<String>,
    #[serde(rename = "asked")]
    last_request: Option<SentRequest>,
    /// Set when the prompt was sent. Earlier text and tool calls are history.
    prompted: bool,
    /// Number of dropped updates of the history that are not reported yet.
    history: u64,
    /// Text that arrives in chunks and is not complete yet.
    #[serde(rename = "words")]
    chunks: Option<MessageChunks>,
    tools: Tools,
    spent: AcpUsage,
    /// HTTP status of the model's server, if the last error answer of the agent states it.
    status: Option<u64>,
    failed: Option<Failed>,
    confirmed: Confirmed,
    #[serde(skip)]
    redactor: TextRedactor,
}

/// The client's last request, until it is answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SentRequest {
    id: u64,
    method: String,
}

/// Failure that the client itself detected. A failure that the agent reports is in the result of `output`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Failed {
    kind: ErrorKind,
    message: String,
}

impl OutputReader for Acp {
    fn line_cap(&self) -> usize {
        // Three times the limit of the client, because an invalid byte becomes a replacement character of three bytes.
        48 << 20
    }

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

    fn confirmed(&self) -> Option<&Confirmed> {
        Some(&self.confirmed)
    }

    fn confirmed_mut(&mut self) -> Option<&mut Confirmed> {
        Some(&mut self.confirmed)
    }

    fn usage(&self) -> Option<JobUsage> {
        self.spent.usage()
    }

    fn set_redactor(&mut self, redactor: &Redactor) {
        self.redactor = TextRedactor(redactor.clone());
    }

    fn rest(&mut self) -> Vec<OutputMessage> {
        let messages = self.flush();
        for message in &messages {
            self.output.message(message);
        }
        messages
    }

    fn finish(mut self, status: &ExitStatus) -> Finish {
        self.spent.read_record(self.session_id.as_deref());
        let outcome = match (self.failed, status) {
            // The failure counts only if the client exited with a code, and not if it was killed by a signal.
            (Some(Failed { kind, message }), ExitStatus::Code { .. }) => {
                let summary = self.output.last_text().map(str::to_owned);
                let error = JobError { kind, message };
                Outcome::Failed { reason: FailReason::Error, error, summary }
            }
            _ => self.output.outcome(status, ", and the turn was not finished"),
        };
        Finish { outcome, usage: self.spent.usage(), session_id: self.session_id, resets_at: None }
    }
}

impl Acp {
    fn object(&mut self, mut line: Fields) -> Vec<OutputMessage> {
        if let Some(kind) = take_text(&mut line, CLIENT_KEY) {
            return self.client_line(&kind, line);
        }
        line.shift_remove("jsonrpc");
        match text(&line, "method") {
            Some("session/update") => self.update(line),
            Some("session/request_permission") => {
                let mut messages = self.flush_text();
                messages.extend(self.tools.asked(&line));
                messages.push(line_message("request_permission", line));
                messages
            }
            None if line.contains_key("id") => self.answer(line),
            _ => vec![line_message("unknown_type", line)],
        }
    }

    fn client_line(&mut self, kind: &str, mut line: Fields) -> Vec<OutputMessage> {
        match kind {
            REQUEST => {
                let id = line.get("id").and_then(Value::as_u64).unwrap_or_default();
                let method = short_text(&line, "method").unwrap_or_default().to_owned();
                if method == "session/prompt" {
                    self.prompted = true;
                    self.spent.begin();
                }
                self.last_request = Some(SentRequest { id, method });
                Vec::new()
            }
            PERMISSION => {
                let content = take_text(&mut line, "why");
                vec![message::system("permission", content, line)]
            }
            NOTE => {
                let content = take_text(&mut line, "text");
                vec![message::system("note", content, line)]
            }
            MESSAGE => {
                let mut messages = self.flush();
                let id = short_text(&line, "uuid").and_then(|id| id.parse().ok());
                messages.extend(id.and_then(|id| self.confirmed.confirm(id)).into_iter().flatten());
                messages
            }
            // The result of the turn is in the output.
            TURN_ENDED => Vec::new(),
            FAILED => self.failed(line),
            _ => vec![line_message("unknown_type", line)],
        }
    }

    fn failed(&mut self, mut line: Fields) -> Vec<OutputMessage> {
        let mut messages = self.flush();
        let message = take_text(&mut line, "message").unwrap_or_default();
        let kind = line.get("kind").and_then(|kind| serde_json::from_value(kind.clone()).ok());
        let kind = kind.unwrap_or(ErrorKind::Reported);
        let status = self.status.or_else(|| usage::status_in(&message));
        if kind == ErrorKind::Reported {
            self.output.result = Some(ResultLine::new(Some((message.clone(), status)), <_>::default()));
        } else {
            self.failed = Some(Failed { kind, message: one_line(&message) });
        }
        let code = status.map(|status| status.to_string());
        messages.push(OutputMessage::Error {
            message,
            code,
            stack: None,
            timestamp: None,
            extra: Map::new(),
        });
        messages
    }

    /// Reads an answer of the agent. Only the answer to the client's last request is interpreted.
    fn answer(&mut self, mut line: Fields) -> Vec<OutputMessage> {
        let id = line.get("id").and_then(Value::as_u64);
        let last_request = self.last_request.take_if(|last_request| Some(last_request.id) == id);
        let Some(SentRequest { method, .. }) = last_request else {
            return vec![line_message("unknown_type", line)];
        };
        // Some agents answer `null` instead of an empty object.
        let none = line.get("result").is_some_and(Value::is_null).then(Fields::new);
        if let Some(none) = none {
            line.insert("result".to_owned(), Value::Object(none));
        }
        let Some(result) = line.get_mut("result").and_then(Value::as_object_mut) else {
            // Some agents pass on the status of the model's server as their error code.
            let code = line.get("error").and_then(|error| error["code"].as_u64());
            self.status = code.filter(|code| (400..600).contains(code));
            return vec![line_message(&method, line)];
        };
        match method.as_str() {
            "session/new" | "session/fork" | "session/load" | "session/resume" => {
                let resumed = self
                    .resumes
                    .take()
                    .filter(|_| !matches!(method.as_str(), "session/new" | "session/fork"));
                self.session_id = short_text(result, "sessionId").map(str::to_owned).or(resumed);
                self.spent.set_model(result);
                message::shorten(result);
                vec![line_message("init", line)]
            }
            "session/prompt" => {
                let mut messages = self.flush();
                self.spent.answered(result);
                self.spent.read_record(self.session_id.as_deref());
                self.output.result = Some(stopped(text(result, "stopReason").unwrap_or_default()));
                messages.push(line_message("result", line));
                messages
            }
            _ => {
                message::shorten(result);
                vec![line_message(&method, line)]
            }
        }
    }

    fn update(&mut self, mut line: Fields) -> Vec<OutputMessage> {
        let params = line.get_mut("params").and_then(Value::as_object_mut);
        let Some(mut update) = params.and_then(|params| take_object(params, "update")) else {
            return vec![line_message("unknown_type", line)];
        };
        let kind = text(&update, "sessionUpdate").unwrap_or_default().to_owned();
        self.spent.add_update(&update);
        if self.prompted && !kind.ends_with("_chunk") {
            self.spent.read_record(self.session_id.as_deref());
        }
        match kind.as_str() {
            "agent_message_chunk"
            | "agent_thought_chunk"
            | "user_message_chunk"
            | "tool_call"
            | "tool_call_update"
            | "plan"
                if !self.prompted =>
            {
                self.history += 1;
                Vec::new()
            }
            "agent_message_chunk" | "agent_thought_chunk" => self.chunk(&kind, update),
            "tool_call" | "tool_call_update" => {
                let mut messages = self.flush_text();
                messages.extend(self.tools.update(update));
                messages
            }
            _ => {
                message::shorten(&mut update);
                vec![line_message(&kind, update)]
            }
        }
    }

    fn chunk(&mut self, kind: &str, update: Fields) -> Vec<OutputMessage> {
        let thinking = kind == "agent_thought_chunk";
        let id = short_text(&update, "messageId").map(str::to_owned);
        let mut messages = Vec::new();
        if self.chunks.as_ref().is_some_and(|chunks| !chunks.is_continued_by(thinking, id.as_deref())) {
            messages.extend(self.flush_text());
        }
        let chunks = self.chunks.get_or_insert_with(|| MessageChunks::new(thinking, id));
        if let Some(other) = chunks.add(update, &self.redactor) {
            messages.extend(self.flush_text());
            messages.push(other);
        }
        messages
    }

    fn flush_text(&mut self) -> Vec<OutputMessage> {
        self.chunks.take().and_then(|chunks| chunks.message(&self.redactor)).into_iter().collect()
    }

    fn flush(&mut self) -> Vec<OutputMessage> {
        let mut messages = self.flush_text();
        messages.extend(self.tools.flush());
        if self.history > 0 {
            let content = format!(
                "the agent repeated {} updates of the session's history; they are not shown",
                self.history
            );
            messages.push(message::system("history", Some(content), Fields::new()));
            self.history = 0;
        }
        messages
    }
}

/// Converts the reason for the end of a turn to a result.
fn stopped(reason: &str) -> ResultLine {
    let (subtype, message) = match reason {
        "end_turn" => return ResultLine::new(None, <_>::default()),
        "max_turn_requests" => {
            ("error_max_turns", "the agent reached its limit of requests to the model".to_owned())
        }
        "max_tokens" => ("error_max_tokens", "the agent reached the model's limit of tokens".to_owned()),
        "refusal" => ("error_refusal", "the agent refused to continue".to_owned()),
        "cancelled" => (
            "error_cancelled",
            "the agent ended the turn as cancelled, and cowhand did not ask for that".to_owned(),
        ),
        other => {
            ("error_stop_reason", format!("the agent stopped for an unknown reason: {}", one_line(other)))
        }
    };
    let fields = json!({ "subtype": subtype, "is_error": true, "result": message });
    ResultLine::read(fields.as_object().unwrap_or(&Map::new()))
}

fn line_message(subtype: &str, line: Fields) -> OutputMessage {
    let (subtype, extra) = (Some(one_line(subtype)), under_line(Value::Object(line)));
    OutputMessage::System { subtype, content: None, timestamp: None, extra }
}

#[cfg(test)]
mod tests;

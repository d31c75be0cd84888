//! The runtime `opencode`: `opencode run --format json`.
//!
//! OpenCode writes no special first or last line. Every line has the session id, and the last line of a step has the
//! tokens and the cost of the step. An attempt has succeeded if it has finished a step, has no line of type `error`
//! after its last step, and exits with code 0.

mod launch;

use std::collections::BTreeMap;

use cowhand_core::job::{JobUsage, MAX_USD, ModelUsage, Outcome};
use cowhand_core::output::{OutputMessage, Usage};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::json::{Fields, count, object, rest, short_text, take_object, take_text, text, under_line};
use super::output_record::OutputRecord;
use super::result_line::ResultLine;
use super::{Finish, OutputReader};
use crate::ending::ExitStatus;
pub(super) use launch::DESCRIPTION;

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Opencode {
    #[serde(rename = "heard")]
    output: OutputRecord,
    session_id: Option<String>,
    /// Configured model; OpenCode does not state which model answers.
    model: Option<String>,
    spent: ModelUsage,
    cost: f64,
    steps: u64,
}

impl OutputReader for Opencode {
    fn read(&mut self, line: &str) -> Vec<OutputMessage> {
        if line.trim().is_empty() {
            return Vec::new();
        }
        let Some(mut fields) = object(line) else {
            self.output.stdout(line);
            return vec![OutputMessage::text(None, line)];
        };
        self.session_id = short_text(&fields, "sessionID").map(str::to_owned).or(self.session_id.take());
        let timestamp = fields.get("timestamp").and_then(Value::as_i64);
        let timestamp = timestamp.and_then(|time| Timestamp::from_millisecond(time).ok());
        if timestamp.is_some() {
            fields.shift_remove("timestamp");
        }
        let messages = self.object(fields, timestamp);
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
        (self.steps > 0).then(|| self.spent())
    }

    fn finish(self, status: &ExitStatus) -> Finish {
        let outcome = match (&self.output.result, status) {
            (Some(_), _) => self.output.outcome(status, ""),
            // An attempt without a finished step counts as failed, whatever its exit code is.
            (None, ExitStatus::Code { code: 0 }) if self.steps > 0 => {
                Outcome::Completed { summary: self.output.summary() }
            }
            _ => self.output.failed(status, if self.steps > 0 { "" } else { ", and no step was finished" }),
        };
        let usage = self.usage();
        Finish { outcome, usage, session_id: self.session_id, resets_at: None }
    }
}

impl Opencode {
    fn spent(&self) -> JobUsage {
        let model = self.model.clone().unwrap_or_else(|| "default".to_owned());
        // OpenCode reports 0 for a model whose price it does not know.
        let cost_usd = Some(self.cost).filter(|cost| *cost > 0.0);
        JobUsage {
            per_model: BTreeMap::from([(model, ModelUsage { cost_usd, ..self.spent })]),
            num_turns: Some(self.steps),
            total_cost_usd: cost_usd,
            assumed_usd: None,
        }
    }

    fn object(&mut self, mut line: Fields, timestamp: Option<Timestamp>) -> Vec<OutputMessage> {
        let kind = text(&line, "type").unwrap_or_default().to_owned();
        match kind.as_str() {
            "text" | "reasoning" => vec![assistant_message(&kind, line, timestamp)],
            "tool_use" => tool(line, timestamp),
            "step_finish" => vec![self.step(line, timestamp)],
            "error" => vec![self.error(line, timestamp)],
            "step_start" => {
                line.shift_remove("type");
                vec![line_message("step_start", line, timestamp)]
            }
            _ => vec![line_message("unknown_type", line, timestamp)],
        }
    }

    fn step(&mut self, mut line: Fields, timestamp: Option<Timestamp>) -> OutputMessage {
        line.shift_remove("type");
        let part = line.get("part");
        if let Some(tokens) = part.and_then(|part| part.get("tokens")) {
            let cache = tokens.get("cache").cloned().unwrap_or_default();
            let add = |total: &mut u64, more: u64| *total = total.saturating_add(more);
            add(&mut self.spent.input_tokens, count(tokens, "input"));
            add(
                &mut self.spent.output_tokens,
                count(tokens, "output").saturating_add(count(tokens, "reasoning")),
            );
            add(&mut self.spent.cache_creation_input_tokens, count(&cache, "write"));
            add(&mut self.spent.cache_read_input_tokens, count(&cache, "read"));
        }
        let cost = part.and_then(|part| part.get("cost")).and_then(Value::as_f64).unwrap_or_default();
        self.cost = (self.cost + cost).clamp(0.0, MAX_USD);
        self.steps += 1;
        // If there was an error before this step, OpenCode continued after it.
        self.output.result = None;
        line_message("step_finish", line, timestamp)
    }

    fn error(&mut self, mut line: Fields, timestamp: Option<Timestamp>) -> OutputMessage {
        line.shift_remove("type");
        let error = line.get("error").and_then(Value::as_object);
        let data = error.and_then(|error| error.get("data")).and_then(Value::as_object);
        let reason = data.and_then(|data| text(data, "message"));
        let kind = error.and_then(|error| text(error, "name"));
        let message = reason.or(kind).unwrap_or("OpenCode failed and gave no reason").to_owned();
        let status = data.and_then(|data| data.get("statusCode")).and_then(Value::as_u64);
        let code = status.map(|status| status.to_string()).or_else(|| kind.map(str::to_owned));
        self.output.result = Some(ResultLine::new(Some((message.clone(), status)), JobUsage::default()));
        OutputMessage::Error { message, code, stack: None, timestamp, extra: rest(line) }
    }
}

fn assistant_message(kind: &str, mut line: Fields, timestamp: Option<Timestamp>) -> OutputMessage {
    line.shift_remove("type");
    let text = line.get_mut("part").and_then(Value::as_object_mut).and_then(|part| take_text(part, "text"));
    let mut extra = rest(line);
    let (content, usage) = if kind == "text" {
        (text, None::<Usage>)
    } else {
        extra.extend(text.map(|thinking| ("thinking".to_owned(), Value::String(thinking))));
        (None, None)
    };
    OutputMessage::Assistant { content, partial: None, usage, timestamp, extra }
}

/// Reads a tool line, which contains the call and the result.
fn tool(mut line: Fields, timestamp: Option<Timestamp>) -> Vec<OutputMessage> {
    line.shift_remove("type");
    let Some(mut part) = take_object(&mut line, "part") else {
        return vec![line_message("unknown_type", line, timestamp)];
    };
    let mut state = take_object(&mut part, "state").unwrap_or_default();
    let tool_name = take_text(&mut part, "tool").unwrap_or_else(|| "unknown".to_owned());
    let tool_use_id = take_text(&mut part, "callID");
    let input = state.shift_remove("input");
    let call = OutputMessage::ToolUse {
        tool_name,
        tool_use_id: tool_use_id.clone(),
        input,
        timestamp,
        extra: Fields::new(),
    };
    let failed = text(&state, "status") == Some("error");
    let result = state.shift_remove("output");
    let error = take_text(&mut state, "error");
    let error = error.or_else(|| failed.then(|| "the tool failed and gave no reason".to_owned()));
    part.insert("state".to_owned(), Value::Object(state));
    line.insert("part".to_owned(), Value::Object(part));
    let success = Some(!failed);
    let answer =
        OutputMessage::ToolResult { tool_use_id, result, success, error, timestamp, extra: rest(line) };
    vec![call, answer]
}

fn line_message(subtype: &str, line: Fields, timestamp: Option<Timestamp>) -> OutputMessage {
    let (subtype, extra) = (Some(subtype.to_owned()), under_line(Value::Object(line)));
    OutputMessage::System { subtype, content: None, timestamp, extra }
}

#[cfg(test)]
mod tests {
    use cowhand_core::job::{ErrorKind, FailReason};
    use serde_json::json;

    use super::*;
    use crate::runtime::Reader;

    #[test]
    fn unknown_lines_are_kept() {
        for (line, expected) in [
            ("  ", json!([])),
            ("Hello", json!([{"type": "system", "content": "Hello"}])),
            (
                r#"{"type":"hologram","of":"a cow"}"#,
                json!([{"type": "system", "subtype": "unknown_type", "line": {"type": "hologram", "of": "a cow"}}]),
            ),
            (r#"{"type":"tool_use"}"#, json!([{"type": "system", "subtype": "unknown_type", "line": {}}])),
            (
                r#"{"type":"reasoning","part":{"text":"hm","id":"p"}}"#,
                json!([{"type": "assistant", "line": {"part": {"id": "p"}}, "thinking": "hm"}]),
            ),
            (
                r#"{"type":"tool_use","part":{"tool":"bash","callID":"c","state":{"status":"error","input":{"command":"x"},"error":"denied"}}}"#,
                json!([
                    {"type": "tool_use", "tool_name": "bash", "tool_use_id": "c", "input": {"command": "x"}},
                    {"type": "tool_result", "tool_use_id": "c", "success": false, "error": "denied",
                     "line": {"part": {"state": {"status": "error"}}}},
                ]),
            ),
        ] {
            assert_eq!(serde_json::to_value(Reader::opencode().read(line)).unwrap(), expected, "{line}");
        }
    }

    #[test]
    fn exit_status_and_errors_decide_the_outcome() {
        let step = r#"{"type":"step_finish","part":{"tokens":{"input":7,"output":2,"reasoning":1,"cache":{"read":3,"write":4}},"cost":0}}"#;
        let busy =
            r#"{"type":"error","error":{"name":"APIError","data":{"message":"slow down","statusCode":429}}}"#;
        let finish = |lines: &[&str], code| {
            let mut reader = Opencode::default();
            for line in lines {
                reader.read(line);
            }
            reader.finish(&ExitStatus::Code { code })
        };
        let good = finish(&[busy, step], 0);
        assert_eq!(good.outcome, Outcome::Completed { summary: None });
        let usage = good.usage.unwrap();
        let used = usage.per_model["default"];
        assert_eq!((used.input_tokens, used.output_tokens), (7, 3));
        assert_eq!((used.cache_read_input_tokens, used.cache_creation_input_tokens), (3, 4));
        assert_eq!((usage.num_turns, usage.total_cost_usd), (Some(1), None));
        for (lines, code, kind, message) in [
            (&[busy][..], 1, ErrorKind::RateLimited, "slow down"),
            (&[step, busy], 0, ErrorKind::RateLimited, "slow down"),
            (&[step], 3, ErrorKind::Exit, "exit code 3"),
            (&[], 0, ErrorKind::Exit, "exit code 0, and no step was finished"),
        ] {
            let Outcome::Failed { reason: FailReason::Error, error, .. } = finish(lines, code).outcome else {
                panic!("{lines:?}")
            };
            assert_eq!((error.kind, error.message.as_str()), (kind, message), "{lines:?}");
        }
    }
}

//! Tool calls of an ACP agent. Each call becomes a message when its input is known, and another message when it ends.

use std::collections::VecDeque;

use cowhand_core::output::OutputMessage;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::json::{Fields, rest, short_text, take_text, text};
use super::super::output_record::one_line;

/// Maximum number of remembered calls; the oldest is forgotten for a new one. Agents make fewer calls at a time.
const MAX_OPEN_TOOLS: usize = 64;

/// Calls that have not ended.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Tools(VecDeque<Call>);

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
struct Call {
    id: String,
    name: Option<String>,
    kind: Option<String>,
    title: Option<String>,
    /// Input of an announced call. The input may be incomplete.
    input: Option<Value>,
    /// Set if the call is in the job's output.
    #[serde(rename = "told")]
    reported: bool,
}

/// Maximum size of a remembered input as JSON. Remembered inputs are part of every checkpoint.
const MAX_INPUT_BYTES: usize = 4 << 10;

impl Tools {
    pub(super) fn update(&mut self, mut update: Fields) -> Vec<OutputMessage> {
        let Some(index) = self.call_index(&update) else {
            return vec![super::line_message("unknown_type", update)];
        };
        let input = update.shift_remove("rawInput").filter(|input| !is_empty(input));
        let status = text(&update, "status").unwrap_or_default().to_owned();
        let is_finished = matches!(status.as_str(), "completed" | "failed");
        let mut messages = Vec::new();
        let Some(call) = self.0.get_mut(index) else { return messages };
        let announced = status == "pending" && text(&update, "sessionUpdate") == Some("tool_call");
        let small = input.as_ref().is_some_and(|input| input.to_string().len() <= MAX_INPUT_BYTES);
        if announced && small {
            call.input = input;
        } else if !call.reported && (input.is_some() || is_finished || status == "in_progress") {
            messages.push(call.report(input));
        }
        for key in ["toolCallId", "sessionUpdate"] {
            update.shift_remove(key);
        }
        if is_finished {
            messages.push(result(&call.id, status == "completed", update));
            self.0.remove(index);
            return messages;
        }
        // The last update contains the whole output, so output is dropped here. Diffs are kept, because a later update
        // may not repeat them.
        update.shift_remove("rawOutput");
        if let Some(content) = update.get_mut("content").and_then(Value::as_array_mut) {
            content.retain(|each| each["type"] == "diff");
        }
        update.retain(|_, value| !is_empty(value));
        if !update.is_empty() {
            update.insert("toolCallId".to_owned(), json!(call.id));
            messages.push(super::line_message("tool_call", update));
        }
        messages
    }

    /// Reads a request for permission, because some agents state a tool call only there. Returns the call if it was not
    /// reported yet.
    pub(super) fn asked(&mut self, line: &Fields) -> Option<OutputMessage> {
        let call = line.get("params")?.get("toolCall")?.as_object()?;
        let index = self.call_index(call)?;
        let input = call.get("rawInput").filter(|input| !is_empty(input)).cloned();
        self.0.get_mut(index).filter(|call| !call.reported).map(|call| call.report(input))
    }

    /// Returns the calls that were not reported because their input never arrived.
    pub(super) fn flush(&mut self) -> Vec<OutputMessage> {
        self.0.iter_mut().filter(|call| !call.reported).map(|call| call.report(None)).collect()
    }

    fn call_index(&mut self, update: &Fields) -> Option<usize> {
        let id = short_text(update, "toolCallId")?;
        let index = self.0.iter().position(|call| call.id == id).unwrap_or_else(|| {
            if self.0.len() == MAX_OPEN_TOOLS {
                self.0.pop_front();
            }
            self.0.push_back(Call { id: id.to_owned(), ..Call::default() });
            self.0.len() - 1
        });
        let call = self.0.get_mut(index)?;
        let meta = |pointer: &str| update.get("_meta")?.pointer(pointer)?.as_str();
        let name =
            short_text(update, "name").or_else(|| meta("/toolName")).or_else(|| meta("/claudeCode/toolName"));
        call.name = call.name.take().or_else(|| name.map(one_line));
        call.kind = short_text(update, "kind").map(str::to_owned).or(call.kind.take());
        call.title = text(update, "title").map(one_line).or(call.title.take());
        Some(index)
    }
}

impl Call {
    fn report(&mut self, input: Option<Value>) -> OutputMessage {
        self.reported = true;
        let input = input.or_else(|| self.input.take());
        let title = || self.title.as_ref().map(|title| json!({ "title": title }));
        OutputMessage::ToolUse {
            tool_name: self
                .name
                .clone()
                .or_else(|| self.kind.clone())
                .unwrap_or_else(|| "unknown".to_owned()),
            tool_use_id: Some(self.id.clone()),
            input: input.or_else(title),
            timestamp: None,
            extra: Fields::new(),
        }
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

fn result(id: &str, success: bool, mut update: Fields) -> OutputMessage {
    update.shift_remove("status");
    let text = content_text(&update);
    let output = update.shift_remove("rawOutput").filter(|output| !is_empty(output));
    let result = output.or_else(|| text.clone().map(Value::String));
    // Content that is already in the result is not repeated.
    let alone = update.get("content").and_then(Value::as_array).is_some_and(|all| all.len() == 1);
    if alone && result.as_ref().and_then(Value::as_str) == text.as_deref() {
        update.shift_remove("content");
    }
    update.retain(|_, value| !is_empty(value));
    let error = take_text(&mut update, "error");
    let error = error.or_else(|| (!success).then(|| text.unwrap_or_else(|| NO_REASON_GIVEN.to_owned())));
    OutputMessage::ToolResult {
        tool_use_id: Some(id.to_owned()),
        result,
        success: Some(success),
        error: error.map(|error| one_line(&error)),
        timestamp: None,
        extra: rest(update),
    }
}

const NO_REASON_GIVEN: &str = "the tool failed and gave no reason";

/// Returns the text in the content; `None` if there is no text. For a terminal of the agent, the text is under `_meta`.
fn content_text(update: &Fields) -> Option<String> {
    let content = update.get("content").and_then(Value::as_array).into_iter().flatten();
    let texts: Vec<&str> = content.filter_map(|each| each.pointer("/content/text")?.as_str()).collect();
    if !texts.is_empty() {
        return Some(texts.join("\n"));
    }
    let terminal = update.get("_meta")?.pointer("/terminal_output_delta/data")?;
    terminal.as_str().map(str::to_owned)
}

//! The items of Codex's output.

use cowhand_core::output::OutputMessage;
use serde_json::{Value, json};

use super::super::json::{Fields, rest, take_object, take_text, text};
use super::{Codex, MAX_OPEN_TOOLS, line_message};

impl Codex {
    /// Reads a line about an item that started, was updated, or completed.
    pub(super) fn item(&mut self, kind: &str, mut line: Fields) -> Vec<OutputMessage> {
        let Some(mut item) = take_object(&mut line, "item") else {
            return vec![line_message("unknown_type", None, line)];
        };
        let done = kind == "item.completed";
        let item_type = text(&item, "type").unwrap_or_default().to_owned();
        match item_type.as_str() {
            "agent_message" if done => {
                item.shift_remove("type");
                let content = take_text(&mut item, "text");
                let extra = rest(item);
                vec![OutputMessage::Assistant { content, partial: None, usage: None, timestamp: None, extra }]
            }
            "reasoning" if done => {
                item.shift_remove("type");
                let thinking = take_text(&mut item, "text");
                let mut extra = rest(item);
                extra.extend(thinking.map(|thinking| ("thinking".to_owned(), Value::String(thinking))));
                let content = None;
                vec![OutputMessage::Assistant { content, partial: None, usage: None, timestamp: None, extra }]
            }
            // Items of type `error` also appear in successful attempts, for problems that Codex works around.
            "error" => {
                let content = take_text(&mut item, "message");
                item.shift_remove("type");
                vec![OutputMessage::System {
                    subtype: Some("warning".to_owned()),
                    content,
                    timestamp: None,
                    extra: rest(item),
                }]
            }
            "command_execution" | "mcp_tool_call" | "file_change" | "web_search" | "collab_tool_call" => {
                self.tool(kind, &item_type, item)
            }
            _ => {
                line.insert("item".to_owned(), Value::Object(item));
                let subtype = if item_type.is_empty() { "unknown_type" } else { item_type.as_str() };
                vec![line_message(subtype, None, line)]
            }
        }
    }

    /// Reads an item that is a tool call. If only the end of the call is reported, the line becomes both messages.
    fn tool(&mut self, kind: &str, item_type: &str, mut item: Fields) -> Vec<OutputMessage> {
        let id = take_text(&mut item, "id");
        item.shift_remove("type");
        let known = id.as_ref().is_some_and(|id| self.running.contains(id));
        let mut messages = Vec::new();
        if !known {
            messages.push(tool_use(item_type, id.clone(), &item));
        }
        if kind == "item.completed" {
            self.running.retain(|running| Some(running) != id.as_ref());
            messages.push(tool_result(item_type, id, item));
        } else if !known {
            self.running.extend(id.filter(|id| id.len() <= 200));
            if self.running.len() > MAX_OPEN_TOOLS {
                self.running.pop_front();
            }
        } else {
            item.insert("id".to_owned(), json!(id));
            messages.push(line_message("tool_progress", None, item));
        }
        messages
    }
}

/// Keys of an item that are known at its start. The other keys are its result.
const REQUEST_KEYS: [&str; 10] = [
    "command",
    "server",
    "tool",
    "arguments",
    "changes",
    "query",
    "action",
    "prompt",
    "sender_thread_id",
    "receiver_thread_ids",
];

fn tool_use(item_type: &str, tool_use_id: Option<String>, item: &Fields) -> OutputMessage {
    let is_request = |key: &String| REQUEST_KEYS.contains(&key.as_str());
    let input: Fields =
        item.iter().filter(|(key, _)| is_request(key)).map(|(k, v)| (k.clone(), v.clone())).collect();
    let (tool_name, input) = match (item_type, text(item, "server"), text(item, "tool")) {
        ("mcp_tool_call", Some(server), Some(tool)) => {
            (format!("mcp__{server}__{tool}"), item.get("arguments").cloned())
        }
        _ => (item_type.to_owned(), Some(Value::Object(input))),
    };
    OutputMessage::ToolUse { tool_name, tool_use_id, input, timestamp: None, extra: Fields::new() }
}

fn tool_result(item_type: &str, tool_use_id: Option<String>, mut item: Fields) -> OutputMessage {
    item.retain(|key, _| !REQUEST_KEYS.contains(&key.as_str()));
    let failed = matches!(text(&item, "status"), Some("failed" | "declined"))
        || item.get("exit_code").and_then(Value::as_i64).is_some_and(|code| code != 0);
    let output = if item_type == "command_execution" { "aggregated_output" } else { "result" };
    let result = item.shift_remove(output).filter(|result| !result.is_null());
    let reason = item.get("error").and_then(|error| text(error.as_object()?, "message")).map(str::to_owned);
    let (result, error) = match (failed, result) {
        (false, result) => (result, reason),
        (true, Some(Value::String(text))) if reason.is_none() && !text.trim().is_empty() => {
            (None, Some(text))
        }
        (true, result) => {
            let result = result.filter(|result| result.as_str() != Some(""));
            (result, Some(reason.unwrap_or_else(|| failure_reason(&item))))
        }
    };
    let success = Some(!failed);
    OutputMessage::ToolResult { tool_use_id, result, success, error, timestamp: None, extra: rest(item) }
}

fn failure_reason(item: &Fields) -> String {
    match item.get("exit_code").and_then(Value::as_i64) {
        Some(code) => format!("exit code {code}"),
        None if text(item, "status") == Some("declined") => {
            "the use of the tool was declined, without a reason".to_owned()
        }
        None => "the tool failed and gave no reason".to_owned(),
    }
}

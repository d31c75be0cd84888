//! The content blocks of a line of Claude Code. Each block becomes a message.

use std::mem::take;

use cowhand_core::output::{OutputMessage, Usage};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::json::{Fields, take_text, text, under_line};

/// The keys of a line without its blocks. They become part of the first block's message.
pub(super) struct Rest {
    pub(super) line: Fields,
    /// Set for the first line of a message. Further lines of the message repeat its usage.
    pub(super) first: bool,
    timestamp: Option<Timestamp>,
}

impl Rest {
    /// Splits a line into its blocks and the rest. For a line without blocks, returns one empty block.
    pub(super) fn split(mut line: Fields) -> (Vec<Fields>, Self) {
        line.shift_remove("type");
        let timestamp = text(&line, "timestamp").and_then(|time| time.parse().ok());
        if timestamp.is_some() {
            line.shift_remove("timestamp");
        }
        line.retain(|_, value| !value.is_null());
        let mut blocks = Vec::new();
        if let Some(Value::Object(message)) = line.get_mut("message") {
            blocks = match message.shift_remove("content") {
                Some(Value::Array(content)) => content.into_iter().map(block).collect(),
                Some(Value::Null) | None => Vec::new(),
                Some(other) => vec![block(other)],
            };
            message.retain(|key, value| !value.is_null() && key != "type" && key != "role");
            if message.is_empty() {
                line.shift_remove("message");
            }
        }
        if blocks.is_empty() {
            blocks.push(Fields::new());
        }
        (blocks, Self { line, first: false, timestamp })
    }

    /// Returns the extra keys of a block's message: the keys of the block, and in the first call also the keys of the
    /// line. In later calls, the id of Claude's message stands for the keys of the line.
    fn extra(&mut self, block: Fields) -> Fields {
        let id = self.line.get("message").and_then(|message| message.get("id")).cloned();
        let mut line = take(&mut self.line);
        self.line.extend(id.map(|id| ("message".to_owned(), json!({ "id": id }))));
        if !block.is_empty() {
            line.insert("block".to_owned(), Value::Object(block));
        }
        if line.is_empty() { line } else { under_line(Value::Object(line)) }
    }

    /// Returns the usage of a message for the first block of its first line, and `None` for all other blocks, so that a
    /// sum counts the usage once. The input tokens include cached ones.
    fn usage(&mut self) -> Option<Usage> {
        if !self.first {
            return None;
        }
        let message = self.line.get_mut("message")?.as_object_mut()?;
        let Value::Object(mut counts) = message.shift_remove("usage")? else { return None };
        let count = |key: &str| counts.get(key).and_then(Value::as_u64);
        let cached = ["cache_creation_input_tokens", "cache_read_input_tokens"];
        let cached = cached.into_iter().filter_map(count).fold(0, u64::saturating_add);
        let (input, output) = (count("input_tokens"), count("output_tokens"));
        counts.retain(|key, value| !value.is_null() && key != "input_tokens" && key != "output_tokens");
        Some(Usage {
            input_tokens: input.map(|fresh| fresh.saturating_add(cached)),
            output_tokens: output,
            extra: counts,
        })
    }
}

fn block(content: Value) -> Fields {
    match content {
        Value::Object(fields) => fields,
        Value::String(text) => {
            Fields::from_iter([("type".to_owned(), json!("text")), ("text".to_owned(), Value::String(text))])
        }
        other => Fields::from_iter([("content".to_owned(), other)]),
    }
}

/// Reads a block of a line of type `assistant`.
pub(super) fn assistant_block(mut block: Fields, rest: &mut Rest) -> OutputMessage {
    let timestamp = rest.timestamp;
    let kind = text(&block, "type").unwrap_or_default().to_owned();
    match kind.as_str() {
        "text" => {
            let (content, usage) = (take_text(&mut block, "text"), rest.usage());
            remove_type(&mut block, "text");
            OutputMessage::Assistant { content, partial: None, usage, timestamp, extra: rest.extra(block) }
        }
        "thinking" => {
            let (thinking, usage) = (take_text(&mut block, "thinking"), rest.usage());
            remove_type(&mut block, "thinking");
            let mut extra = rest.extra(block);
            extra.extend(thinking.map(|thinking| ("thinking".to_owned(), Value::String(thinking))));
            OutputMessage::Assistant { content: None, partial: None, usage, timestamp, extra }
        }
        // Also `server_tool_use` and `mcp_tool_use`.
        kind if kind.ends_with("tool_use") => {
            let tool_name = take_text(&mut block, "name").unwrap_or_else(|| kind.to_owned());
            let tool_use_id = take_text(&mut block, "id");
            let input = block.shift_remove("input");
            remove_type(&mut block, "tool_use");
            OutputMessage::ToolUse { tool_name, tool_use_id, input, timestamp, extra: rest.extra(block) }
        }
        kind if kind.ends_with("tool_result") => tool_result(block, rest),
        _ => {
            let usage = rest.usage();
            OutputMessage::Assistant {
                content: None,
                partial: None,
                usage,
                timestamp,
                extra: rest.extra(block),
            }
        }
    }
}

/// Reads a block of a line of type `user`, which is usually a tool result.
pub(super) fn user_block(mut block: Fields, rest: &mut Rest) -> OutputMessage {
    if text(&block, "type").is_some_and(|kind| kind.ends_with("tool_result")) {
        return tool_result(block, rest);
    }
    let content = take_text(&mut block, "text");
    remove_type(&mut block, "text");
    let subtype = Some("user_input".to_owned());
    OutputMessage::System { subtype, content, timestamp: rest.timestamp, extra: rest.extra(block) }
}

fn tool_result(mut block: Fields, rest: &mut Rest) -> OutputMessage {
    let tool_use_id = take_text(&mut block, "tool_use_id");
    let failed = block.shift_remove("is_error").is_some_and(|failed| failed == Value::Bool(true));
    remove_type(&mut block, "tool_result");
    let mut result = block.shift_remove("content");
    let error = match (&mut result, failed) {
        (Some(Value::String(text)), true) => Some(take(text)),
        (Some(other), true) => Some(all_text(other)),
        (None, true) => Some("the tool failed and gave no reason".to_owned()),
        (_, false) => None,
    };
    // The text of a failure is reported once, as the error.
    if failed && result.as_ref().is_some_and(Value::is_string) {
        result = None;
    }
    let (success, timestamp) = (Some(!failed), rest.timestamp);
    OutputMessage::ToolResult { tool_use_id, result, success, error, timestamp, extra: rest.extra(block) }
}

/// Returns the partial content of a line, and whether it is text. It may also be thinking or a part of a tool's input.
pub(super) fn piece(fields: &mut Fields) -> Option<(bool, &mut String)> {
    let delta = fields.get_mut("event")?.get_mut("delta")?.as_object_mut()?;
    delta.iter_mut().find_map(|(key, value)| match (key.as_str(), value) {
        (key @ ("text" | "thinking" | "partial_json"), Value::String(piece)) => Some((key == "text", piece)),
        _ => None,
    })
}

/// Returns a partial message; the whole message follows later.
pub(super) fn partial(fields: Fields) -> OutputMessage {
    let (_, mut rest) = Rest::split(fields);
    let delta =
        rest.line.get_mut("event").and_then(|event| event.get_mut("delta")).and_then(Value::as_object_mut);
    let content = delta.and_then(|delta| take_text(delta, "text"));
    let (partial, timestamp) = (Some(true), rest.timestamp);
    OutputMessage::Assistant { content, partial, usage: None, timestamp, extra: rest.extra(Fields::new()) }
}

/// Returns a partial message with the text that was held back.
pub(super) fn held_back_text(text: String) -> OutputMessage {
    let (content, partial) = (Some(text), Some(true));
    OutputMessage::Assistant { content, partial, usage: None, timestamp: None, extra: Fields::new() }
}

/// Joins the text in the blocks of a tool result. Returns the JSON if there is no text.
fn all_text(content: &Value) -> String {
    let blocks = content.as_array().map_or(&[][..], Vec::as_slice);
    let texts: Vec<_> = blocks.iter().filter_map(|block| block.get("text")?.as_str()).collect();
    if texts.is_empty() { content.to_string() } else { texts.join("\n") }
}

/// Removes the type of a block if it is `implied`, because then the type of the message already states it.
fn remove_type(block: &mut Fields, implied: &str) {
    if text(block, "type") == Some(implied) {
        block.shift_remove("type");
    }
}

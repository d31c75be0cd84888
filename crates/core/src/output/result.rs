//! The final output of a job, collected message by message, so that not all messages have to be in memory at once.

use std::collections::VecDeque;

use serde_json::Value;

use super::OutputMessage;

/// Final output of the last attempt: the result that the agent reported, else its last complete message, else the last
/// result of a tool, else the unstructured lines of the attempt.
#[derive(Debug, Default)]
pub struct FinalOutput {
    result: Option<String>,
    last_message: Option<String>,
    last_tool_result: Option<String>,
    lines: VecDeque<String>,
    /// Size of `lines`, with one more byte for each line.
    bytes: usize,
    /// True if earlier lines were dropped.
    dropped_lines: bool,
}

/// Maximum size of the unstructured lines, in bytes. The last lines are kept, and at least one line.
const MAX_LINES_SIZE: usize = 64 << 10;

impl FinalOutput {
    pub fn add(&mut self, message: OutputMessage) {
        match message {
            // Output of an earlier attempt does not count.
            OutputMessage::System { subtype: Some(subtype), .. } if subtype == OutputMessage::ATTEMPT => {
                *self = Self::default();
            }
            OutputMessage::System { subtype: Some(subtype), extra, .. } if subtype == "result" => {
                if let Some(text) = extra.get("line").and_then(|line| text_of(line.get("result")?)) {
                    self.result = Some(text);
                }
            }
            OutputMessage::System { subtype: None, content: Some(line), .. } => match result_line(&line) {
                Some(fields) => self.result = fields.get("result").and_then(text_of).or(self.result.take()),
                None => self.remember(line),
            },
            // Messages of a subagent are not messages of the agent.
            OutputMessage::Assistant { extra, .. }
                if extra.get("line").is_some_and(|line| line.get("parent_tool_use_id").is_some()) => {}
            OutputMessage::Assistant { content: Some(content), partial: None | Some(false), .. }
                if !content.trim().is_empty() =>
            {
                self.last_message = Some(content);
            }
            OutputMessage::ToolResult { result: Some(result), .. } => {
                self.last_tool_result = text_of(&result).or(self.last_tool_result.take());
            }
            _ => {}
        }
    }

    /// Checks whether the added messages of the last attempt contain a result or a complete message of the agent. If
    /// the end of an output contains such a text, its beginning need not be read.
    pub const fn has_agent_text(&self) -> bool {
        self.result.is_some() || self.last_message.is_some()
    }

    pub fn into_text(self) -> Option<String> {
        let Self { result, last_message, last_tool_result, lines, dropped_lines, .. } = self;
        result.or(last_message).or(last_tool_result).or_else(|| {
            let text = Vec::from(lines).join("\n");
            let text = if dropped_lines { format!("…\n{text}") } else { text };
            (!text.trim().is_empty()).then_some(text)
        })
    }

    fn remember(&mut self, line: String) {
        self.bytes += line.len() + 1;
        self.lines.push_back(line);
        while self.bytes > MAX_LINES_SIZE && self.lines.len() > 1 {
            self.bytes -= self.lines.pop_front().map_or(0, |line| line.len() + 1);
            self.dropped_lines = true;
        }
    }
}

fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => (!text.trim().is_empty()).then(|| text.clone()),
        other => Some(other.to_string()),
    }
}

/// Returns the fields of a line of a command's output, if the line has the form of Claude's result line; its `type` may
/// be missing. Such a line is stored as plain text, because it is not a message of cowhand. It does not count as an
/// unstructured line, even if it states no result.
fn result_line(line: &str) -> Option<Value> {
    let fields = line.starts_with('{').then(|| serde_json::from_str::<Value>(line).ok()).flatten()?;
    let is_result = fields.get("type").is_none_or(|kind| kind == "result");
    (is_result && fields.get("is_error")?.is_boolean()).then_some(fields)
}

//! What a job came to in the end, found message by message: nobody needs them all at once.

use std::collections::VecDeque;

use serde_json::Value;

use super::OutputMessage;

/// The result that the agent told in the last attempt, else the last thing it said as a whole, else the last answer of a tool, else its
/// lines without a shape.
#[derive(Debug, Default)]
pub struct FinalOutput {
    told: Option<String>,
    said: Option<String>,
    answered: Option<String>,
    lines: VecDeque<String>,
    /// Of `lines`, and whether there were more.
    bytes: usize,
    forgotten: bool,
}

/// Of lines without a shape, the last ones are kept.
const MOST: usize = 64 << 10;

impl FinalOutput {
    pub fn hear(&mut self, message: OutputMessage) {
        match message {
            // What an earlier attempt said is not what the job came to.
            OutputMessage::System { subtype: Some(subtype), .. } if subtype == OutputMessage::ATTEMPT => {
                *self = Self::default();
            }
            OutputMessage::System { subtype: Some(subtype), extra, .. } if subtype == "result" => {
                if let Some(text) = extra.get("line").and_then(|line| text_of(line.get("result")?)) {
                    self.told = Some(text);
                }
            }
            OutputMessage::System { subtype: None, content: Some(line), .. } => match told(&line) {
                Some(text) => self.told = Some(text),
                None => self.remember(line),
            },
            // What a subagent says is not the agent's own word.
            OutputMessage::Assistant { extra, .. }
                if extra.get("line").is_some_and(|line| line.get("parent_tool_use_id").is_some()) => {}
            OutputMessage::Assistant { content: Some(content), partial: None | Some(false), .. }
                if !content.trim().is_empty() =>
            {
                self.said = Some(content);
            }
            OutputMessage::ToolResult { result: Some(result), .. } => {
                self.answered = text_of(&result).or(self.answered.take());
            }
            _ => {}
        }
    }

    /// Whether the agent itself has said what it came to: only its later words can change that.
    pub const fn is_said(&self) -> bool {
        self.told.is_some() || self.said.is_some()
    }

    pub fn into_text(self) -> Option<String> {
        let Self { told, said, answered, lines, forgotten, .. } = self;
        told.or(said).or(answered).or_else(|| {
            let text = Vec::from(lines).join("\n");
            let text = if forgotten { format!("…\n{text}") } else { text };
            (!text.trim().is_empty()).then_some(text)
        })
    }

    fn remember(&mut self, line: String) {
        self.bytes += line.len() + 1;
        self.lines.push_back(line);
        while self.bytes > MOST && self.lines.len() > 1 {
            self.bytes -= self.lines.pop_front().map_or(0, |line| line.len() + 1);
            self.forgotten = true;
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

/// A command may end with a line like Claude's last one, which is none of our messages and so stays as it is.
fn told(line: &str) -> Option<String> {
    let fields = line.starts_with('{').then(|| serde_json::from_str::<Value>(line).ok()).flatten()?;
    let is_result = fields.get("type").is_none_or(|kind| kind == "result");
    (is_result && fields.get("is_error")?.is_boolean()).then(|| text_of(fields.get("result")?)).flatten()
}

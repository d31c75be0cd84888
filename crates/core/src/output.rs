//! The output of a job: one message for each line of its JSONL file.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::cut::cut;
use cap::Bounded;

mod cap;
mod result;
mod text;

pub use result::FinalOutput;
pub use text::TextFormat;

/// One line of a job's output. Unknown keys stay in `extra` and are written unchanged.
///
/// `timestamp` may be missing in the input; the code that appends the message sets it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum OutputMessage {
    /// Messages about the session, lines that cowhand writes, and output of the agent that fits no other type.
    System {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        subtype: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        content: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timestamp: Option<Timestamp>,
        #[serde(flatten)]
        extra: Map<String, Value>,
    },
    /// Text of the agent.
    Assistant {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        content: Option<String>,
        /// True for a part of a message. The whole message follows later.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        partial: Option<bool>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timestamp: Option<Timestamp>,
        #[serde(flatten)]
        extra: Map<String, Value>,
    },
    /// Call of a tool.
    ToolUse {
        tool_name: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tool_use_id: Option<String>,
        #[serde(default, deserialize_with = "null_as_value", skip_serializing_if = "Option::is_none")]
        input: Option<Value>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timestamp: Option<Timestamp>,
        #[serde(flatten)]
        extra: Map<String, Value>,
    },
    /// Result of a tool.
    ToolResult {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tool_use_id: Option<String>,
        #[serde(default, deserialize_with = "null_as_value", skip_serializing_if = "Option::is_none")]
        result: Option<Value>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        success: Option<bool>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timestamp: Option<Timestamp>,
        #[serde(flatten)]
        extra: Map<String, Value>,
    },
    /// An error.
    Error {
        message: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stack: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timestamp: Option<Timestamp>,
        #[serde(flatten)]
        extra: Map<String, Value>,
    },
}

/// Tokens of one assistant message.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// Input tokens, including those written to and read from the cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_tokens: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u64>,
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// Deserializes a present `null` as a value, because the result `null` of a tool differs from no result.
fn null_as_value<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

impl OutputMessage {
    /// The `subtype` of the line before the output of each attempt after the first.
    pub const ATTEMPT: &str = "attempt";

    /// The `subtype` of the line about a gap: a part of the raw output that was never written.
    pub const GAP: &str = "gap";
    /// The `subtype` of the line about raw output that became shorter and is read from its start again.
    pub const TRUNCATED: &str = "truncated";
    /// The `subtype` of the line about output of a cancelled job that was not read.
    pub const UNREAD: &str = "unread";
    /// The `subtype` of a message that somebody sent to the job and that the agent has.
    pub const STEERING: &str = "steering";
    /// The `subtype`s of the lines that only cowhand writes.
    const OWN_SUBTYPES: [&str; 4] = [Self::ATTEMPT, Self::GAP, Self::TRUNCATED, Self::UNREAD];

    /// Key of the reason why the previous attempt ended, in the line before an attempt.
    pub const BEFORE_KEY: &str = "before";
    const MAX_BEFORE_LENGTH: usize = 500;

    /// Creates the line that separates attempt `number` from the previous attempt. `before` is the reason why the
    /// previous attempt ended.
    pub fn attempt(number: u32, before: Option<&str>) -> Self {
        let before = before.map(|before| cut(before, 0, Self::MAX_BEFORE_LENGTH));
        Self::System {
            subtype: Some(Self::ATTEMPT.to_owned()),
            content: Some(format!("attempt {number}")),
            timestamp: None,
            extra: before.map(|before| (Self::BEFORE_KEY.to_owned(), before.into())).into_iter().collect(),
        }
    }

    /// Returns a message of an agent in the form in which it is stored. A message that looks like a line that only
    /// cowhand writes becomes text, so that no agent can write such a line.
    #[must_use]
    pub fn of_agent(self) -> Self {
        match &self {
            Self::System { subtype: Some(subtype), timestamp, .. }
                if Self::OWN_SUBTYPES.contains(&subtype.as_str()) =>
            {
                let (content, timestamp) = (serde_json::to_string(&self).ok(), *timestamp);
                Self::System { subtype: None, content, timestamp, extra: Map::new() }
            }
            _ => self,
        }
    }

    /// Formats the line before an attempt for people: `attempt 2 (attempt 1 failed: exit code 3 (exit))`. `which` is
    /// the content of the line, and `extra` its further keys.
    pub fn attempt_heading(which: &str, extra: &Map<String, Value>) -> String {
        match extra.get(Self::BEFORE_KEY).and_then(Value::as_str) {
            Some(before) => {
                let words: Vec<&str> = before.split_whitespace().collect();
                format!("{which} ({})", words.join(" "))
            }
            None => which.to_owned(),
        }
    }

    /// Values of `type`, one for each variant.
    const MESSAGE_TYPES: [&str; 5] = ["system", "assistant", "tool_use", "tool_result", "error"];

    /// Returns whether this is the `type` of a message.
    pub fn is_message_type(kind: &str) -> bool {
        Self::MESSAGE_TYPES.contains(&kind)
    }

    /// Checks and converts JSON that is to be appended.
    pub fn from_json(value: Value) -> Result<Self, OutputError> {
        let Value::Object(fields) = &value else {
            return Err(OutputError::NotAnObject(name_of(&value)));
        };
        let kind = match fields.get("type") {
            Some(Value::String(kind)) => kind.clone(),
            Some(other) => return Err(OutputError::UnknownType(other.to_string())),
            None => return Err(OutputError::NoType),
        };
        if !Self::is_message_type(&kind) {
            return Err(OutputError::UnknownType(format!("{kind:?}")));
        }
        serde_json::from_value(value).map_err(|error| OutputError::Field { kind, problem: error.to_string() })
    }

    /// Parses one line of a JSONL file; none for a blank line. The caller decides whether an invalid line is an error.
    pub fn read_line(line: &str) -> Result<Option<Self>, OutputError> {
        if line.trim().is_empty() {
            return Ok(None);
        }
        let value = serde_json::from_str(line).map_err(|error| OutputError::NotJson(error.to_string()))?;
        Self::from_json(value).map(Some)
    }

    /// Formats the message as one line without line end, of at most `cap` bytes. A smaller cap than [`Self::MIN_CAP`]
    /// counts as [`Self::MIN_CAP`]. Long values are cut and marked, and the line stays a message of the same type.
    pub fn to_line(&self, cap: usize) -> Result<String, OutputError> {
        let mut line = Vec::new();
        self.append_line(&mut line, cap)?;
        line.pop();
        String::from_utf8(line).map_err(|error| self.not_written(&error))
    }

    /// Appends the line of [`Self::to_line`] and a line end.
    pub fn append_line(&self, out: &mut Vec<u8>, cap: usize) -> Result<(), OutputError> {
        let (start, cap) = (out.len(), cap.max(Self::MIN_CAP));
        match serde_json::to_writer(Bounded { out, room: cap }, self) {
            // The line is longer than the cap, possibly many times longer.
            Err(error) if error.is_io() => {
                out.truncate(start);
                let fields = serde_json::to_value(self).map_err(|error| self.not_written(&error))?;
                let written = serde_json::to_writer(&mut *out, &cap::fit(fields, cap));
                written.map_err(|error| self.not_written(&error))?;
            }
            written => written.map_err(|error| self.not_written(&error))?,
        }
        out.push(b'\n');
        Ok(())
    }

    /// Minimum cap: room for the fields that every message has, and for a note about the cut.
    pub const MIN_CAP: usize = 1024;

    fn not_written(&self, error: &dyn std::error::Error) -> OutputError {
        let kind = Self::MESSAGE_TYPES[self.place()].to_owned();
        OutputError::Field { kind, problem: error.to_string() }
    }

    const fn place(&self) -> usize {
        match self {
            Self::System { .. } => 0,
            Self::Assistant { .. } => 1,
            Self::ToolUse { .. } => 2,
            Self::ToolResult { .. } => 3,
            Self::Error { .. } => 4,
        }
    }

    pub const fn timestamp(&self) -> Option<Timestamp> {
        match self {
            Self::System { timestamp, .. }
            | Self::Assistant { timestamp, .. }
            | Self::ToolUse { timestamp, .. }
            | Self::ToolResult { timestamp, .. }
            | Self::Error { timestamp, .. } => *timestamp,
        }
    }

    /// Sets `now` as the timestamp, unless the message already has a timestamp.
    #[must_use]
    pub fn stamped(mut self, now: Timestamp) -> Self {
        match &mut self {
            Self::System { timestamp, .. }
            | Self::Assistant { timestamp, .. }
            | Self::ToolUse { timestamp, .. }
            | Self::ToolResult { timestamp, .. }
            | Self::Error { timestamp, .. } => *timestamp = timestamp.or(Some(now)),
        }
        self
    }
}

const fn name_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OutputError {
    #[error("an output line must be JSON: {0}")]
    NotJson(String),
    #[error("an output message must be a JSON object with a `type`, not {0}")]
    NotAnObject(&'static str),
    #[error("an output message needs a `type`: {}", OutputMessage::MESSAGE_TYPES.join(", "))]
    NoType,
    #[error("unknown output type {0}; expected one of {types}", types = OutputMessage::MESSAGE_TYPES.join(", "))]
    UnknownType(String),
    #[error("output message of type {kind}: {problem}")]
    Field { kind: String, problem: String },
}

#[cfg(test)]
mod tests;

//! The message that shows the progress of a job. It is edited in place.

use std::collections::{HashMap, VecDeque};

use jiff::SignedDuration;
use serde_json::Value;

use super::short_text;
use crate::chat::ChatPlatform;
use crate::chat::escape::inline_code;
use crate::chat::markdown::post_limit;
use crate::chat::settings::OutputDetail;
use crate::chat::split::{length, shorten};
use crate::duration;

/// Maximum number of shown lines.
const STANDARD_LINES: usize = 8;
const VERBOSE_LINES: usize = 20;
/// Maximum length of the input and of the result of a tool within a line.
const STANDARD_INPUT_CHARS: usize = 80;
const VERBOSE_INPUT_CHARS: usize = 200;
const MAX_NAME_CHARS: usize = 80;
const MAX_REASON_CHARS: usize = 300;
/// Maximum number of remembered calls that have no result yet.
const MAX_OPEN_CALLS: usize = 200;

#[derive(Debug)]
pub(super) struct ProgressTrace {
    platform: ChatPlatform,
    detail: OutputDetail,
    state: ProgressState,
    tool_calls: usize,
    /// The last lines.
    lines: VecDeque<TraceLine>,
    /// Calls without a result, by their ids.
    open_calls: HashMap<String, ShownCall>,
}

#[derive(Debug, Clone)]
pub(super) enum ProgressState {
    Working,
    Done { duration: Option<SignedDuration> },
    Failed { reason: String },
    Stopped { by: Option<String> },
}

/// Call of a tool as it is shown.
#[derive(Debug, Clone, Default)]
pub(super) struct ShownCall {
    pub(super) name: String,
    pub(super) input: String,
}

#[derive(Debug)]
enum TraceLine {
    Note(String),
    Call { id: Option<String>, call: ShownCall, is_of_subagent: bool, end: Option<CallEnd> },
}

#[derive(Debug)]
struct CallEnd {
    has_failed: bool,
    result: String,
}

impl ProgressTrace {
    pub(super) fn new(platform: ChatPlatform, detail: OutputDetail) -> Self {
        let (lines, open_calls) = (VecDeque::new(), HashMap::new());
        Self { platform, detail, state: ProgressState::Working, tool_calls: 0, lines, open_calls }
    }

    pub(super) fn note(&mut self, text: &str) {
        self.push(TraceLine::Note(shorten(&one_line(text), VERBOSE_INPUT_CHARS)));
    }

    pub(super) fn tool_call(
        &mut self,
        name: &str,
        id: Option<&str>,
        input: Option<&Value>,
        is_of_subagent: bool,
    ) {
        self.tool_calls += 1;
        let input = input.map(short_input).unwrap_or_default();
        let call = ShownCall { name: shorten(name, MAX_NAME_CHARS), input };
        if let Some(id) = id
            && self.open_calls.len() < MAX_OPEN_CALLS
        {
            self.open_calls.insert(id.to_owned(), call.clone());
        }
        self.push(TraceLine::Call { id: id.map(str::to_owned), call, is_of_subagent, end: None });
    }

    /// Adds a result to the line of its call, and returns the call. A result without an id belongs to the first open
    /// call without an id.
    pub(super) fn tool_result(
        &mut self,
        id: Option<&str>,
        text: Option<&str>,
        has_failed: bool,
    ) -> ShownCall {
        let remembered = id.and_then(|id| self.open_calls.remove(id));
        let result = shorten(&one_line(text.unwrap_or_default()), VERBOSE_INPUT_CHARS);
        let line = self.lines.iter_mut().find_map(|line| match line {
            TraceLine::Call { id: known, call, end: end @ None, .. } if known.as_deref() == id => {
                Some((call, end))
            }
            _ => None,
        });
        let Some((call, end)) = line else { return remembered.unwrap_or_default() };
        *end = Some(CallEnd { has_failed, result });
        call.clone()
    }

    pub(super) fn finish(&mut self, state: ProgressState) {
        self.state = state;
    }

    fn push(&mut self, line: TraceLine) {
        self.lines.push_back(line);
        if self.lines.len() > VERBOSE_LINES {
            self.lines.pop_front();
        }
    }

    pub(super) fn to_text(&self) -> String {
        let most = match self.detail {
            OutputDetail::Minimal => 0,
            OutputDetail::Standard => STANDARD_LINES,
            OutputDetail::Verbose => VERBOSE_LINES,
        };
        let status = self.status();
        let mut room = post_limit(self.platform).saturating_sub(length(&status));
        let mut lines: Vec<String> = Vec::new();
        for line in self.lines.iter().rev().take(most).map(|line| self.line(line)) {
            let size = length(&line) + 1;
            if size > room {
                break;
            }
            room -= size;
            lines.push(line);
        }
        lines.push(status);
        lines.reverse();
        lines.join("\n")
    }

    fn status(&self) -> String {
        let calls = match self.tool_calls {
            0 => String::new(),
            1 => " · 1 tool call".to_owned(),
            many => format!(" · {many} tool calls"),
        };
        match &self.state {
            ProgressState::Working => format!("⏳ Working{calls}"),
            ProgressState::Done { duration: Some(time) } => {
                format!("✅ Done in {}{calls}", duration::rounded(*time))
            }
            ProgressState::Done { duration: None } => format!("✅ Done{calls}"),
            ProgressState::Failed { reason } => {
                format!("❌ Failed: {}{calls}", short_text(reason, MAX_REASON_CHARS, self.platform))
            }
            ProgressState::Stopped { by: Some(by) } => {
                format!("⏹️ Stopped by {}{calls}", short_text(by, MAX_NAME_CHARS, self.platform))
            }
            ProgressState::Stopped { by: None } => format!("⏹️ Stopped{calls}"),
        }
    }

    fn line(&self, line: &TraceLine) -> String {
        let limit =
            if self.detail == OutputDetail::Verbose { VERBOSE_INPUT_CHARS } else { STANDARD_INPUT_CHARS };
        match line {
            TraceLine::Note(text) => format!("• {}", short_text(text, limit, self.platform)),
            TraceLine::Call { call, is_of_subagent, end, .. } => {
                let symbol = match end {
                    None => "▸",
                    Some(CallEnd { has_failed: false, .. }) => "✓",
                    Some(CallEnd { has_failed: true, .. }) => "✗",
                };
                let subagent = if *is_of_subagent { "↳ " } else { "" };
                let result = match end {
                    Some(CallEnd { result, .. }) if !result.is_empty() => {
                        format!(" → {}", short_text(result, limit, self.platform))
                    }
                    _ => String::new(),
                };
                format!("{subagent}{symbol} {}{result}", call.to_text(limit, self.platform))
            }
        }
    }
}

impl ShownCall {
    /// Formats the name of the tool and its input.
    pub(super) fn to_text(&self, limit: usize, platform: ChatPlatform) -> String {
        let name = if self.name.is_empty() { "Tool" } else { &self.name };
        let name = short_text(name, MAX_NAME_CHARS, platform);
        if self.input.is_empty() {
            return name;
        }
        format!("{name} {}", inline_code(&shorten(&self.input, limit), platform))
    }
}

/// Returns the field of a tool's input that tells most about the call, or else the whole input, as one short line.
fn short_input(input: &Value) -> String {
    const PREFERRED_KEYS: [&str; 8] =
        ["command", "file_path", "path", "pattern", "query", "url", "description", "prompt"];
    let text = match input {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Object(fields) if fields.is_empty() => String::new(),
        other => {
            let preferred = PREFERRED_KEYS.iter().find_map(|key| other.get(*key)?.as_str());
            preferred.map_or_else(|| other.to_string(), str::to_owned)
        }
    };
    shorten(&one_line(&text), VERBOSE_INPUT_CHARS)
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

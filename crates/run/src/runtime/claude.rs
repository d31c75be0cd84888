//! The runtime `claude`, Claude Code: `claude -p --output-format stream-json --verbose`.
//!
//! A line of type `assistant` or `user` becomes one message for each of its content blocks. Keys for which the message
//! has no field are kept in its object `line`. A line of type `system` or `error` already has the form of a message.
//! New versions of Claude Code add keys and types of lines, so the reader requires no key and keeps lines of unknown
//! types.

mod blocks;
pub(super) mod input;
mod launch;
mod windows;

use std::collections::{BTreeMap, VecDeque};

use cowhand_core::job::{JobUsage, ModelUsage};
use cowhand_core::output::OutputMessage;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::json::{Fields, short_text, text, under_line};
use super::output_record::OutputRecord;
use super::pieces::{Pieces, TextRedactor};
use super::result_line::ResultLine;
use super::steering::Confirmed;
use super::{Finish, OutputReader};
use crate::ending::ExitStatus;
use crate::redact::Redactor;
use blocks::{Rest, assistant_block};
pub(super) use launch::DESCRIPTION;

/// Maximum number of remembered blocks, of remembered messages and of models. An agent has fewer concurrent subagents
/// and uses fewer models.
const MAX_REMEMBERED: usize = 64;

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Claude {
    #[serde(rename = "heard")]
    output: OutputRecord,
    session_id: Option<String>,
    /// Ids of the last messages of Claude whose usage was counted, at most `MAX_REMEMBERED`. Claude writes a message
    /// as several lines, and each line repeats the usage of the message. Several ids are needed, because lines of
    /// concurrent subagents are interleaved.
    counted: VecDeque<String>,
    /// Usage of the messages so far, by model. It is used if there is no result line or the result line states no
    /// tokens. A line states the output tokens as they were when its message began, so this is a lower bound.
    spent: BTreeMap<String, ModelUsage>,
    /// Usage of the session before this attempt. A result line states the usage of the whole session.
    #[serde(rename = "before")]
    usage_before: JobUsage,
    /// End of the usage limit that was reached, in seconds since 1970.
    resets_at: Option<i64>,
    /// Blocks that arrive in parts. The key is the id of the tool call that started the subagent, and the index of the
    /// block.
    blocks: BTreeMap<String, Block>,
    /// Id of the prompt, if it was passed as a message. Claude confirms it too.
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt: Option<Uuid>,
    confirmed: Confirmed,
    #[serde(skip)]
    redactor: TextRedactor,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
struct Block {
    /// Set for text; unset for thinking and tool calls.
    #[serde(rename = "word")]
    is_text: bool,
    pieces: Pieces,
}

impl OutputReader for Claude {
    fn read(&mut self, line: &str) -> Vec<OutputMessage> {
        if line.trim().is_empty() {
            return Vec::new();
        }
        let Ok(Value::Object(fields)) = serde_json::from_str(line) else {
            self.output.stdout(line);
            return vec![OutputMessage::text(None, line)];
        };
        self.object(fields)
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

    fn confirmed(&self) -> Option<&Confirmed> {
        Some(&self.confirmed)
    }

    fn confirmed_mut(&mut self) -> Option<&mut Confirmed> {
        Some(&mut self.confirmed)
    }

    fn usage(&self) -> Option<JobUsage> {
        let counted_models = self.spent.iter().filter(|(_, used)| !used.is_unused());
        let counted_models: BTreeMap<_, _> =
            counted_models.map(|(model, used)| (model.clone(), *used)).collect();
        let counted_models = Some(counted_models).filter(|counted_models| !counted_models.is_empty());
        let reported =
            self.output.result.as_ref().map(|result| result.usage.clone().since(&self.usage_before));
        match (reported, counted_models) {
            // A result without tokens does not replace the tokens that were counted.
            (Some(reported), Some(counted_models)) if reported.per_model.is_empty() => {
                Some(JobUsage { per_model: counted_models, ..reported })
            }
            (Some(mut reported), Some(counted_models)) => {
                add_missing_input(&mut reported.per_model, &counted_models);
                Some(reported)
            }
            (Some(reported), None) => Some(reported),
            (None, counted_models) => {
                counted_models.map(|per_model| JobUsage { per_model, ..JobUsage::default() })
            }
        }
    }

    fn finish(self, status: &ExitStatus) -> Finish {
        let outcome = match &self.output.result {
            Some(result) => result.outcome(),
            None => self.output.failed(status, ", and no result line came"),
        };
        let usage = self.usage();
        let resets_at = self.resets_at.and_then(|second| Timestamp::from_second(second).ok());
        Finish { outcome, usage, session_id: self.session_id, resets_at }
    }
}

impl Claude {
    fn object(&mut self, fields: Fields) -> Vec<OutputMessage> {
        let kind = text(&fields, "type").unwrap_or_default();
        // If the session to continue does not exist, only the result line names it. So this line is not read here.
        if kind != "result" {
            self.session_id = short_text(&fields, "session_id").map(str::to_owned).or(self.session_id.take());
        }
        match kind {
            "assistant" => self.assistant(fields),
            "user" => {
                if let Some(messages) = self.replayed(&fields) {
                    return messages;
                }
                let (blocks, mut rest) = Rest::split(fields);
                blocks.into_iter().map(|block| blocks::user_block(block, &mut rest)).collect()
            }
            "stream_event" => self.partial(fields),
            // The answer to a request of the keeper, and the progress of its messages.
            "control_response" | "command_lifecycle" => Vec::new(),
            "result" => vec![self.result(fields)],
            "system" | "error" => {
                let message = OutputMessage::from_json(Value::Object(fields.clone()));
                let message = message.unwrap_or_else(|_| unknown(fields));
                self.output.message(&message);
                vec![message]
            }
            "rate_limit_event" => {
                let reported = fields.get("rate_limit_info").unwrap_or(&Value::Null);
                let limit = reported["resetsAt"].as_i64().filter(|_| reported["status"] == "rejected");
                self.resets_at = limit.or(self.resets_at);
                for report in windows::reports(reported) {
                    self.output.window(report);
                }
                vec![unknown(fields)]
            }
            _ => vec![unknown(fields)],
        }
    }

    /// Reads a message of the user that Claude repeats because it has taken the message. Returns `None` for other lines.
    fn replayed(&mut self, fields: &Fields) -> Option<Vec<OutputMessage>> {
        fields.get("isReplay").filter(|replay| **replay == Value::Bool(true))?;
        let id: Uuid = short_text(fields, "uuid")?.parse().ok()?;
        if self.prompt == Some(id) {
            return Some(Vec::new());
        }
        self.confirmed.confirm(id)
    }

    /// Reads a part of a block. Blocks of several subagents may be interleaved.
    fn partial(&mut self, mut fields: Fields) -> Vec<OutputMessage> {
        let parent = short_text(&fields, "parent_tool_use_id").unwrap_or_default();
        let event = fields.get("event").unwrap_or(&Value::Null);
        let block = format!("{parent}/{}", event["index"].as_u64().unwrap_or_default());
        let mut messages = Vec::new();
        if let Some((is_text, piece)) = blocks::piece(&mut fields) {
            if self.blocks.len() >= MAX_REMEMBERED && !self.blocks.contains_key(&block) {
                self.blocks.pop_first();
            }
            let known = self.blocks.entry(block).or_default();
            known.is_text = is_text;
            *piece = known.pieces.add(piece, &self.redactor);
        } else if let Some(mut known) = self.blocks.remove(&block) {
            // Views join the parts of a text, so the end that was held back is passed on now. They do not show parts of
            // thinking and tool calls, so the end of these is dropped; the whole block follows.
            let rest = known.pieces.rest(&self.redactor);
            messages.extend((known.is_text && !rest.is_empty()).then(|| blocks::held_back_text(rest)));
        }
        messages.push(blocks::partial(fields));
        messages
    }

    fn assistant(&mut self, fields: Fields) -> Vec<OutputMessage> {
        let (blocks, mut rest) = Rest::split(fields);
        rest.first = self.count(&rest.line);
        // Text of a subagent is not text of the agent itself.
        let is_main_agent = !rest.line.contains_key("parent_tool_use_id");
        let messages: Vec<_> = blocks.into_iter().map(|block| assistant_block(block, &mut rest)).collect();
        if is_main_agent {
            for message in &messages {
                self.output.message(message);
            }
        }
        messages
    }

    /// Adds the usage of a message, and returns whether it was added. Only the first line of a message adds its usage.
    fn count(&mut self, line: &Fields) -> bool {
        let Some(message) = line.get("message").and_then(Value::as_object) else { return false };
        let (Some(id), Some(usage)) = (short_text(message, "id"), message.get("usage")) else { return false };
        if self.counted.iter().any(|counted| counted == id) {
            return false;
        }
        self.counted.push_back(id.to_owned());
        if self.counted.len() > MAX_REMEMBERED {
            self.counted.pop_front();
        }
        let add = |total: &mut u64, key: &str| {
            *total = total.saturating_add(usage.get(key).and_then(Value::as_u64).unwrap_or(0));
        };
        let known = |model: &&str| self.spent.len() < MAX_REMEMBERED || self.spent.contains_key(*model);
        let model = short_text(message, "model").filter(known).unwrap_or("unknown");
        let spent = self.spent.entry(model.to_owned()).or_default();
        add(&mut spent.input_tokens, "input_tokens");
        add(&mut spent.output_tokens, "output_tokens");
        add(&mut spent.cache_creation_input_tokens, "cache_creation_input_tokens");
        add(&mut spent.cache_read_input_tokens, "cache_read_input_tokens");
        true
    }

    fn result(&mut self, fields: Fields) -> OutputMessage {
        let result = ResultLine::read(&fields);
        let (failed, message, code) = (result.failed(), result.message(), result.code());
        self.output.result(result);
        let extra = under_line(Value::Object(fields));
        if failed {
            OutputMessage::Error { message, code: Some(code), stack: None, timestamp: None, extra }
        } else {
            let subtype = Some("result".to_owned());
            OutputMessage::System { subtype, content: None, timestamp: None, extra }
        }
    }
}

/// Adds the input tokens that were counted and are missing in the result. If Claude is interrupted, its result does not
/// contain the call that was interrupted. The output tokens of that call are not known. The models of a result can have
/// other names than those of the messages, so the tokens are compared for all models together.
fn add_missing_input(reported: &mut BTreeMap<String, ModelUsage>, counted: &BTreeMap<String, ModelUsage>) {
    let sum = |models: &BTreeMap<String, ModelUsage>| {
        let mut sum = ModelUsage::default();
        for used in models.values() {
            sum.add(used);
        }
        sum
    };
    let (in_result, in_messages) = (sum(reported), sum(counted));
    let missing = ModelUsage {
        input_tokens: in_messages.input_tokens.saturating_sub(in_result.input_tokens),
        cache_creation_input_tokens: in_messages
            .cache_creation_input_tokens
            .saturating_sub(in_result.cache_creation_input_tokens),
        cache_read_input_tokens: in_messages
            .cache_read_input_tokens
            .saturating_sub(in_result.cache_read_input_tokens),
        ..ModelUsage::default()
    };
    let same_name = reported.keys().find(|model| counted.contains_key(*model)).cloned();
    let Some(model) = same_name.or_else(|| reported.keys().next().cloned()) else { return };
    if let Some(used) = reported.get_mut(&model) {
        used.add(&missing);
    }
}

/// Returns a system message for a line whose type has no message of its own.
fn unknown(fields: Fields) -> OutputMessage {
    let subtype = match text(&fields, "type") {
        Some(known @ ("tool_progress" | "auth_status" | "rate_limit_event")) => known.to_owned(),
        _ => "unknown_type".to_owned(),
    };
    let extra = under_line(Value::Object(fields));
    OutputMessage::System { subtype: Some(subtype), content: None, timestamp: None, extra }
}

#[cfg(test)]
mod tests;

//! Messages of an ACP agent: text that arrives in chunks, and lines with lists that are too long to keep.

use cowhand_core::output::OutputMessage;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::json::{Fields, rest, take_object, take_text, text};
use super::super::pieces::{Pieces, TextRedactor};

/// If the joined text has this size or more, the next chunk begins a new message. The joined text is part of every
/// checkpoint. If the other keys of a chunk have this size or more, these keys are dropped.
const MAX_MESSAGE_BYTES: usize = 256 << 10;

/// Chunks of one message.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct MessageChunks {
    thinking: bool,
    id: Option<String>,
    text: String,
    pieces: Pieces,
    /// Other keys of the chunks, with their last value.
    extra: Fields,
}

impl MessageChunks {
    pub(super) fn new(thinking: bool, id: Option<String>) -> Self {
        Self { thinking, id, ..Self::default() }
    }

    /// Returns true if a chunk is added to this message: it has the same kind and id, and the text is not too long yet.
    pub(super) fn is_continued_by(&self, thinking: bool, id: Option<&str>) -> bool {
        self.thinking == thinking && self.id.as_deref() == id && self.text.len() < MAX_MESSAGE_BYTES
    }

    /// Adds a chunk. A chunk that is not text, for example a picture, is returned as a message of its own.
    pub(super) fn add(&mut self, mut update: Fields, redactor: &TextRedactor) -> Option<OutputMessage> {
        let mut content = take_object(&mut update, "content").unwrap_or_default();
        if text(&content, "type") != Some("text") {
            update.insert("content".to_owned(), Value::Object(content));
            return Some(super::line_message("content", update));
        }
        content.shift_remove("type");
        self.text += &self.pieces.add(&take_text(&mut content, "text").unwrap_or_default(), redactor);
        for key in ["sessionUpdate", "messageId"] {
            update.shift_remove(key);
        }
        update.extend(content);
        if serde_json::to_string(&update).is_ok_and(|extra| extra.len() < MAX_MESSAGE_BYTES) {
            self.extra.extend(update);
        }
        None
    }

    /// Returns the joined message; `None` if it is empty.
    pub(super) fn message(mut self, redactor: &TextRedactor) -> Option<OutputMessage> {
        self.text += &self.pieces.rest(redactor);
        if self.text.is_empty() && self.extra.is_empty() {
            return None;
        }
        let mut extra = self.extra;
        extra.extend(self.id.map(|id| ("messageId".to_owned(), Value::String(id))));
        let mut extra = rest(extra);
        let content = (!self.thinking && !self.text.is_empty()).then_some(self.text.clone());
        if self.thinking {
            extra.insert("thinking".to_owned(), Value::String(self.text));
        }
        Some(OutputMessage::Assistant { content, partial: None, usage: None, timestamp: None, extra })
    }
}

/// Replaces the lists of all commands, models, modes and options by their lengths. Such lists arrive with every session
/// and every change, and are not about the job.
pub(super) fn shorten(fields: &mut Fields) {
    const LISTING_KEYS: [&str; 4] = ["availableCommands", "availableModels", "availableModes", "options"];
    for (key, value) in fields.iter_mut() {
        match value {
            Value::Array(list) if LISTING_KEYS.contains(&key.as_str()) => {
                *value = json!({ "length": list.len() });
            }
            Value::Array(list) => list.iter_mut().filter_map(Value::as_object_mut).for_each(shorten),
            Value::Object(inner) => shorten(inner),
            _ => {}
        }
    }
}

pub(super) fn system(subtype: &str, content: Option<String>, line: Fields) -> OutputMessage {
    OutputMessage::System { subtype: Some(subtype.to_owned()), content, timestamp: None, extra: rest(line) }
}

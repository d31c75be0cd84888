//! Truncation of messages: the longest parts are cut, and small parts stay whole.

use std::fmt::Write;
use std::io;

use serde_json::{Map, Value};

use crate::cut::{MAX_MARKER_LENGTH, push_cut};

/// The end of a buffer, with room for a limited number of bytes. Writing more is an error.
pub(super) struct Bounded<'a> {
    pub(super) out: &'a mut Vec<u8>,
    pub(super) room: usize,
}

impl io::Write for Bounded<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.room = self.room.checked_sub(bytes.len()).ok_or(io::ErrorKind::FileTooLarge)?;
        self.out.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Minimum room for any value: a marker in quotes.
const MIN_VALUE_ROOM: usize = MAX_MARKER_LENGTH + 2;

/// Key of the note that states how many bytes the removed fields had.
const CUT_NOTE_KEY: &str = "cut";

/// Known fields of all types. All other fields of a message are extra.
const MESSAGE_FIELDS: [&str; 15] = [
    "type",
    "timestamp",
    "subtype",
    "content",
    "partial",
    "usage",
    "tool_name",
    "tool_use_id",
    "input",
    "result",
    "success",
    "error",
    "message",
    "code",
    "stack",
];

/// Cuts the fields of a message so that its JSON has at most `cap` bytes.
pub(super) fn fit(message: Value, cap: usize) -> Value {
    let whole = length(&message);
    let Value::Object(mut fields) = message else { return message };
    if frame(&fields) + fields.len() * MIN_VALUE_ROOM > cap {
        // There are so many extra keys that their names alone do not fit.
        fields.retain(|key, _| MESSAGE_FIELDS.contains(&key.as_str()));
        let kept = frame(&fields) + fields.values().map(length).sum::<usize>();
        fields.insert(CUT_NOTE_KEY.to_owned(), note(whole.saturating_sub(kept)));
    }
    let usage = fields.get("usage").map_or(0, length);
    let mut fields = fit_object(fields, cap);
    // A cut `usage` is a text, which is not valid there. The note replaces it and is shorter.
    if fields.get("usage").is_some_and(Value::is_string) {
        fields.shift_remove("usage");
        fields.insert(CUT_NOTE_KEY.to_owned(), note(usage));
    }
    Value::Object(fields)
}

/// Cuts a value so that its JSON has at most `room` bytes. `room` is at least [`MIN_VALUE_ROOM`]. An array or object
/// with too many entries becomes the beginning of its JSON text.
fn fit_value(value: Value, room: usize) -> Value {
    if length(&value) <= room {
        return value;
    }
    match value {
        Value::String(text) => cut(&text, room),
        Value::Array(items) if frame_of_array(&items) + items.len() * MIN_VALUE_ROOM <= room => {
            let level = level(items.iter().map(length).collect(), room - frame_of_array(&items));
            items.into_iter().map(|item| fit_value(item, level)).collect()
        }
        Value::Object(fields) if frame(&fields) + fields.len() * MIN_VALUE_ROOM <= room => {
            Value::Object(fit_object(fields, room))
        }
        other => cut(&other.to_string(), room),
    }
}

fn fit_object(fields: Map<String, Value>, room: usize) -> Map<String, Value> {
    let level = level(fields.values().map(length).collect(), room.saturating_sub(frame(&fields)));
    fields.into_iter().map(|(key, value)| (key, fit_value(value, level))).collect()
}

/// Returns the maximum length of each part so that all parts together fit into `room`. Shorter parts stay whole and
/// leave the room that they do not use to the longer parts. If all parts fit, the result is `usize::MAX`.
fn level(mut lengths: Vec<usize>, mut room: usize) -> usize {
    lengths.sort_unstable();
    let count = lengths.len();
    for (place, length) in lengths.into_iter().enumerate() {
        let share = room / (count - place);
        if length > share {
            return share;
        }
        room -= length;
    }
    usize::MAX
}

/// Returns the length of the JSON text without building it, because it may be long.
fn length(value: &Value) -> usize {
    struct Count(usize);
    impl Write for Count {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            self.0 += text.len();
            Ok(())
        }
    }
    let mut count = Count(0);
    // Counting cannot fail.
    let _ = write!(count, "{value}");
    count.0
}

/// Returns the length of an object without its values: braces, keys, colons and commas.
fn frame(fields: &Map<String, Value>) -> usize {
    2 + fields.keys().map(|key| key.chars().map(cost).sum::<usize>() + 4).sum::<usize>()
}

fn frame_of_array(items: &[Value]) -> usize {
    2 + items.len()
}

fn cut(text: &str, room: usize) -> Value {
    let mut out = String::new();
    push_cut(&mut out, text, 0, room.saturating_sub(2), cost);
    Value::String(out)
}

fn note(bytes: usize) -> Value {
    let mut out = String::new();
    push_cut(&mut out, "", bytes, MAX_MARKER_LENGTH, cost);
    Value::String(out)
}

/// Returns the number of bytes of a character inside a JSON string.
const fn cost(character: char) -> usize {
    match character {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..='\u{1f}' => 6,
        other => other.len_utf8(),
    }
}

//! Functions with which the readers read lines of JSON, and keep the keys for which a message has no field.

use std::mem::take;

use serde_json::{Map, Value};

pub(super) type Fields = Map<String, Value>;

/// Parses a line. Returns `None` if the line is not a JSON object.
pub(super) fn object(line: &str) -> Option<Fields> {
    match serde_json::from_str(line) {
        Ok(Value::Object(fields)) => Some(fields),
        _ => None,
    }
}

pub(super) fn text<'a>(fields: &'a Fields, key: &str) -> Option<&'a str> {
    fields.get(key).and_then(Value::as_str)
}

/// Returns a text that is small enough for a checkpoint; `None` if it is longer than 200 bytes.
pub(super) fn short_text<'a>(fields: &'a Fields, key: &str) -> Option<&'a str> {
    text(fields, key).filter(|name| name.len() <= 200)
}

pub(super) fn count(fields: &Value, key: &str) -> u64 {
    fields.get(key).and_then(number).unwrap_or(0)
}

/// Reads a count. A number beyond 64 bits, which JSON allows, becomes the largest count; `JobUsage::bounded` limits it
/// later. Returns `None` for a negative number or a fraction.
pub(super) fn number(value: &Value) -> Option<u64> {
    #[expect(clippy::cast_precision_loss, reason = "only the order of magnitude decides")]
    let is_huge = || value.as_f64().is_some_and(|number| number >= u64::MAX as f64);
    value.as_u64().or_else(|| is_huge().then_some(u64::MAX))
}

pub(super) fn take_text(fields: &mut Fields, key: &str) -> Option<String> {
    match fields.get_mut(key)? {
        Value::String(text) => {
            let text = take(text);
            fields.shift_remove(key);
            Some(text)
        }
        _ => None,
    }
}

/// Removes the object under a key and returns it.
pub(super) fn take_object(fields: &mut Fields, key: &str) -> Option<Fields> {
    match fields.get_mut(key)? {
        Value::Object(inner) => {
            let inner = take(inner);
            fields.shift_remove(key);
            Some(inner)
        }
        _ => None,
    }
}

/// Returns the extra keys of a message that keeps this JSON under `line`.
pub(super) fn under_line(line: Value) -> Fields {
    Fields::from_iter([("line".to_owned(), line)])
}

/// Returns the rest of a line, without nulls, as the extra keys of a message; empty if there is no rest.
pub(super) fn rest(mut line: Fields) -> Fields {
    line.retain(|_, value| !value.is_null());
    if line.is_empty() { line } else { under_line(Value::Object(line)) }
}

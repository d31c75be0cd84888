//! Reading lines that are JSON, and keeping what a message has no field for.

use std::mem::take;

use serde_json::{Map, Value};

pub(super) type Fields = Map<String, Value>;

/// A line that is an object.
pub(super) fn object(line: &str) -> Option<Fields> {
    match serde_json::from_str(line) {
        Ok(Value::Object(fields)) => Some(fields),
        _ => None,
    }
}

pub(super) fn text<'a>(fields: &'a Fields, key: &str) -> Option<&'a str> {
    fields.get(key).and_then(Value::as_str)
}

/// A text that is remembered, and so goes into every checkpoint: only if it is as short as a name.
pub(super) fn name<'a>(fields: &'a Fields, key: &str) -> Option<&'a str> {
    text(fields, key).filter(|name| name.len() <= 200)
}

pub(super) fn count(fields: &Value, key: &str) -> u64 {
    fields.get(key).and_then(Value::as_u64).unwrap_or(0)
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

/// An object inside a line, taken out of it.
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

pub(super) fn under_line(line: Value) -> Fields {
    Fields::from_iter([("line".to_owned(), line)])
}

/// The rest of a line as the extra keys of a message; nothing if there is no rest.
pub(super) fn rest(mut line: Fields) -> Fields {
    line.retain(|_, value| !value.is_null());
    if line.is_empty() { line } else { under_line(Value::Object(line)) }
}

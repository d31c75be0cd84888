//! Formats the input of a tool for people: a command, the changes of a file, and everything else as JSON.

use serde_json::{Map, Value};

use crate::chat::ChatPlatform;
use crate::chat::escape::{code_block, inline_code, with_codes};

/// A part of the input. Invisible characters in it are written as codes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum InputPart {
    Path(String),
    Code { text: String, language: &'static str },
}

impl InputPart {
    /// Returns the parts of an input.
    pub(super) fn of(input: &Value) -> Vec<Self> {
        let Value::Object(fields) = input else { return vec![json(input)] };
        let mut rest: Map<String, Value> = fields.clone();
        let mut parts = Vec::new();
        if let Some(path) = take_text(&mut rest, "file_path") {
            parts.push(Self::Path(with_codes(&path)));
        }
        if let Some(command) = take_text(&mut rest, "command") {
            parts.push(code(&command, "sh"));
        }
        let changes = match (take_text(&mut rest, "old_string"), take_text(&mut rest, "new_string")) {
            (None, None) => edits(&mut rest),
            (old, new) => vec![(old.unwrap_or_default(), new.unwrap_or_default())],
        };
        parts.extend(changes.iter().map(|(old, new)| diff(old, new)));
        if !parts.is_empty()
            && let Some(content) = take_text(&mut rest, "content")
        {
            parts.push(diff("", &content));
        }
        if !rest.is_empty() || parts.is_empty() {
            parts.push(json(&Value::Object(rest)));
        }
        parts
    }

    /// Formats the part in the notation of the platform.
    pub(super) fn to_markup(&self, platform: ChatPlatform) -> String {
        match self {
            Self::Path(path) => format!("File: {}", inline_code(path, platform)),
            Self::Code { text, language } => code_block(text, language, platform),
        }
    }

    pub(super) fn to_plain_text(&self) -> String {
        match self {
            Self::Path(path) => format!("File: {path}"),
            Self::Code { text, .. } => text.clone(),
        }
    }
}

/// Takes the changes out of the input of a tool that makes several changes. If one of them has another form, all stay
/// in the input.
fn edits(fields: &mut Map<String, Value>) -> Vec<(String, String)> {
    let read = |edit: &Value| {
        let is_plain = edit.as_object().is_some_and(|edit| edit.len() == 2);
        let text = |key: &str| edit.get(key)?.as_str().map(str::to_owned);
        is_plain.then(|| Some((text("old_string")?, text("new_string")?))).flatten()
    };
    let edits = fields.get("edits").and_then(Value::as_array);
    let edits: Option<Vec<_>> = edits.and_then(|edits| edits.iter().map(read).collect());
    if edits.is_some() {
        fields.shift_remove("edits");
    }
    edits.unwrap_or_default()
}

fn take_text(fields: &mut Map<String, Value>, key: &str) -> Option<String> {
    let is_text = fields.get(key).is_some_and(Value::is_string);
    let value = is_text.then(|| fields.shift_remove(key)).flatten()?;
    value.as_str().map(str::to_owned)
}

fn code(text: &str, language: &'static str) -> InputPart {
    InputPart::Code { text: with_codes(text), language }
}

fn json(value: &Value) -> InputPart {
    code(&serde_json::to_string_pretty(value).unwrap_or_default(), "json")
}

/// Formats a change as a diff. Equal lines at the start and at the end are context.
fn diff(old: &str, new: &str) -> InputPart {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let same_start = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    let (old_rest, new_rest) = (&old[same_start..], &new[same_start..]);
    let same_end =
        old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(|(old, new)| old == new).count();
    let marked = |mark: char, lines: &[&str]| -> Vec<String> {
        lines.iter().map(|line| format!("{mark} {line}")).collect()
    };
    let lines = [
        marked(' ', &old[..same_start]),
        marked('-', &old_rest[..old_rest.len() - same_end]),
        marked('+', &new_rest[..new_rest.len() - same_end]),
        marked(' ', &old_rest[old_rest.len() - same_end..]),
    ];
    code(&lines.concat().join("\n"), "diff")
}

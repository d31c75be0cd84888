//! Asks of agents, as people read them before they decide.

use serde_json::{Map, Value};

use crate::ask::{Answered, Ask, AskState, AskSubject};
use crate::chat::ChatPlatform;
use crate::chat::escape::{code_block, escape, inline_code, with_codes};
use crate::chat::markdown::{convert, post_limit};
use crate::chat::split::split;
use crate::duration;

/// Returns the messages of an open ask. They contain the whole input of the tool, in which invisible characters are
/// written as codes, so that a person sees everything that is to be allowed. The buttons belong to the last message.
pub fn ask_posts(ask: &Ask, platform: ChatPlatform) -> Vec<String> {
    let agent = escape(ask.agent.as_str(), platform);
    let (subject, advice) = match &ask.what {
        AskSubject::Tool { tool, input } => {
            let heading = format!("Agent {agent} asks whether it may use {}:", inline_code(tool, platform));
            let parts: Vec<String> = [heading].into_iter().chain(tool_input(input, platform)).collect();
            (parts.join("\n"), "Only operators can allow or deny this.")
        }
        AskSubject::Question { question } => {
            let question = convert(question, platform);
            (format!("Agent {agent} asks:\n{question}"), "Only operators can answer. Reply to this message.")
        }
    };
    let time = duration::rounded(ask.expires_at.duration_since(ask.asked_at));
    split(&format!("{subject}\n\n{advice} The ask {} expires after {time}.", ask.id), post_limit(platform))
}

/// Returns what became of an ask; none while it is open. It replaces the advice and the buttons.
pub fn ask_closed(ask: &Ask, platform: ChatPlatform) -> Option<String> {
    let id = &ask.id;
    let said = |verb: &str, answered: &Answered| {
        let by = answered.by.as_ref().map(|by| format!(" by {}", escape(&by.to_string(), platform)));
        let message = answered.message.as_ref().map(|text| format!(": {}", escape(text, platform)));
        format!("{id} was {verb}{}{}", by.unwrap_or_default(), message.unwrap_or_else(|| ".".to_owned()))
    };
    match &ask.state {
        AskState::Open => None,
        AskState::Allowed(answered) => Some(said("allowed", answered)),
        AskState::Denied(answered) => Some(said("denied", answered)),
        AskState::Answered(answered) => Some(said("answered", answered)),
        AskState::Expired { .. } => Some(format!("{id} expired without an answer. This counts as denied.")),
        AskState::Ended { .. } => Some(format!("{id} is over: the agent ended before somebody answered.")),
    }
}

/// A button was pressed on a question, which needs a text.
pub fn ask_needs_reply() -> String {
    "This ask is a question. Reply to the message with your answer.".to_owned()
}

/// Formats the input of a tool: a command, a change of a file, and everything else as JSON.
fn tool_input(input: &Value, platform: ChatPlatform) -> Vec<String> {
    let Value::Object(fields) = input else { return vec![json_block(input, platform)] };
    let mut rest: Map<String, Value> = fields.clone();
    let mut parts = Vec::new();
    if let Some(path) = take_text(&mut rest, "file_path") {
        parts.push(format!("File: {}", inline_code(&with_codes(&path), platform)));
    }
    if let Some(command) = take_text(&mut rest, "command") {
        parts.push(code_block(&with_codes(&command), "sh", platform));
    }
    let changes = match (take_text(&mut rest, "old_string"), take_text(&mut rest, "new_string")) {
        (None, None) => edits(&mut rest),
        (old, new) => vec![(old.unwrap_or_default(), new.unwrap_or_default())],
    };
    parts.extend(changes.iter().map(|(old, new)| diff_block(old, new, platform)));
    if !parts.is_empty()
        && let Some(content) = take_text(&mut rest, "content")
    {
        parts.push(diff_block("", &content, platform));
    }
    if !rest.is_empty() || parts.is_empty() {
        parts.push(json_block(&Value::Object(rest), platform));
    }
    parts
}

/// Takes the changes of a tool that makes several. If one of them has another form, all stay in the input.
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

fn json_block(value: &Value, platform: ChatPlatform) -> String {
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    code_block(&with_codes(&text), "json", platform)
}

/// Formats a change as a diff. Equal lines at the start and at the end are context.
fn diff_block(old: &str, new: &str, platform: ChatPlatform) -> String {
    let (old, new) = (with_codes(old), with_codes(new));
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
    code_block(&lines.concat().join("\n"), "diff", platform)
}

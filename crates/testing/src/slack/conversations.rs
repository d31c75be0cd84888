//! Methods for messages, their history and their reactions.

use std::sync::Arc;

use serde_json::{Value, json};

use super::api::{MethodResult, SlackError};
use super::events::{add_message, change_message};
use super::{BOT_ID, BOT_USER, FakeSlackState, FakeWorkspace, blocks};

/// Length at which Slack cuts a text.
const MAX_TEXT_CHARS: usize = 40_000;
const DEFAULT_PAGE: usize = 100;
const MAX_PAGE: usize = 999;

fn text<'a>(params: &'a Value, name: &str) -> &'a str {
    params[name].as_str().unwrap_or_default()
}

fn check_channel(state: &FakeSlackState, channel: &str) -> Result<(), SlackError> {
    if state.channels.contains_key(channel) { Ok(()) } else { Err(SlackError::Code("channel_not_found")) }
}

pub(crate) fn post(workspace: &Arc<FakeWorkspace>, params: &Value) -> MethodResult {
    let channel = text(params, "channel");
    {
        let mut state = workspace.state();
        check_channel(&state, channel)?;
        let thread = params["thread_ts"].as_str();
        if thread.is_some_and(|thread| state.message(channel, thread).is_none()) {
            return Err(SlackError::Code("thread_not_found"));
        }
    }
    let has_blocks = params["blocks"].as_array().is_some_and(|blocks| !blocks.is_empty());
    if text(params, "text").is_empty() && !has_blocks {
        return Err(SlackError::Code("no_text"));
    }
    if !blocks::are_valid(&params["blocks"]) {
        return Err(SlackError::Code("invalid_blocks"));
    }
    let cut: String = text(params, "text").chars().take(MAX_TEXT_CHARS).collect();
    let is_cut = cut.len() < text(params, "text").len();
    let mut message = json!({ "user": BOT_USER, "bot_id": BOT_ID, "text": cut });
    for key in ["thread_ts", "blocks", "metadata"] {
        if !params[key].is_null() {
            message[key] = params[key].clone();
        }
    }
    let ts = add_message(workspace, channel, message);
    let message = workspace.state().message(channel, &ts).cloned();
    let mut answer = json!({ "channel": channel, "ts": ts, "message": message });
    if is_cut {
        answer["response_metadata"] = json!({ "warnings": ["message_truncated"] });
    }
    Ok(answer)
}

pub(crate) fn update(workspace: &Arc<FakeWorkspace>, params: &Value) -> MethodResult {
    let (channel, ts) = (text(params, "channel"), text(params, "ts"));
    {
        let mut state = workspace.state();
        check_channel(&state, channel)?;
        let message = state.message(channel, ts).ok_or(SlackError::Code("message_not_found"))?;
        if message["user"] != BOT_USER {
            return Err(SlackError::Code("cant_update_message"));
        }
    }
    if !blocks::are_valid(&params["blocks"]) {
        return Err(SlackError::Code("invalid_blocks"));
    }
    change_message(workspace, channel, ts, |message| {
        for key in ["text", "blocks", "metadata"] {
            if !params[key].is_null() {
                message[key] = params[key].clone();
            }
        }
        message["edited"] = json!({ "user": BOT_USER, "ts": ts });
    });
    Ok(json!({ "channel": channel, "ts": ts, "text": text(params, "text") }))
}

pub(crate) fn history(workspace: &FakeWorkspace, params: &Value) -> MethodResult {
    let mut messages = readable_messages(workspace, params)?;
    let is_top_level = |message: &Value| {
        message["thread_ts"].is_null()
            || message["thread_ts"] == message["ts"]
            || message["subtype"] == "thread_broadcast"
    };
    messages.retain(|message| is_top_level(message) && is_in_range(message, params));
    messages.reverse();
    Ok(page(&messages, None, params))
}

pub(crate) fn replies(workspace: &FakeWorkspace, params: &Value) -> MethodResult {
    let thread = text(params, "ts");
    let messages = readable_messages(workspace, params)?;
    let (parents, mut replies): (Vec<Value>, Vec<Value>) = messages
        .into_iter()
        .filter(|message| message["ts"] == thread || message["thread_ts"] == thread)
        .partition(|message| message["ts"] == thread);
    let parent = parents.into_iter().next().ok_or(SlackError::Code("thread_not_found"))?;
    replies.retain(|message| is_in_range(message, params));
    Ok(page(&replies, Some(parent), params))
}

fn readable_messages(workspace: &FakeWorkspace, params: &Value) -> Result<Vec<Value>, SlackError> {
    let state = workspace.state();
    let channel = text(params, "channel");
    check_channel(&state, channel)?;
    let channel = &state.channels[channel];
    if !state.scopes.contains(channel.kind.history_scope()) {
        return Err(SlackError::MissingScope(channel.kind.history_scope()));
    }
    let mut messages = channel.messages.clone();
    if !is_true(&params["include_all_metadata"]) {
        for message in &mut messages {
            message.as_object_mut().unwrap().remove("metadata");
        }
    }
    Ok(messages)
}

fn is_true(value: &Value) -> bool {
    *value == true || matches!(value.as_str(), Some("true" | "1"))
}

/// Slack's timestamps have the same number of digits, so their order is that of their texts.
fn is_in_range(message: &Value, params: &Value) -> bool {
    let ts = text(message, "ts");
    let is_inclusive = is_true(&params["inclusive"]);
    let is_after =
        params["oldest"].as_str().is_none_or(|oldest| ts > oldest || (is_inclusive && ts == oldest));
    let is_before =
        params["latest"].as_str().is_none_or(|latest| ts < latest || (is_inclusive && ts == latest));
    is_after && is_before
}

/// Cuts a page from a list. The cursor is the number of messages on earlier pages.
fn page(messages: &[Value], parent: Option<Value>, params: &Value) -> Value {
    let limit = params["limit"].as_u64().or_else(|| params["limit"].as_str()?.parse().ok());
    let limit = limit.map_or(DEFAULT_PAGE, |limit| usize::try_from(limit).unwrap()).min(MAX_PAGE);
    let start = params["cursor"].as_str().and_then(|cursor| cursor.parse().ok()).unwrap_or(0);
    let end = (start + limit).min(messages.len());
    let next = if end < messages.len() { end.to_string() } else { String::new() };
    let page: Vec<Value> = parent.into_iter().chain(messages[start.min(end)..end].iter().cloned()).collect();
    json!({ "messages": page, "has_more": !next.is_empty(), "response_metadata": { "next_cursor": next } })
}

pub(crate) fn react(workspace: &FakeWorkspace, params: &Value, is_added: bool) -> MethodResult {
    let mut state = workspace.state();
    let (channel, name) = (text(params, "channel"), text(params, "name"));
    check_channel(&state, channel)?;
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || "_+-'".contains(letter);
    if name.is_empty() || !name.chars().all(is_name) {
        return Err(SlackError::Code("invalid_name"));
    }
    let message = state.message(channel, text(params, "timestamp"));
    let message = message.ok_or(SlackError::Code("message_not_found"))?;
    if message["reactions"].is_null() {
        message["reactions"] = json!([]);
    }
    let reactions = message["reactions"].as_array_mut().unwrap();
    let place = reactions.iter().position(|reaction| reaction["name"] == name);
    match (place, is_added) {
        (Some(_), true) => return Err(SlackError::Code("already_reacted")),
        (None, false) => return Err(SlackError::Code("no_reaction")),
        (None, true) => reactions.push(json!({ "name": name, "users": [BOT_USER], "count": 1 })),
        (Some(place), false) => {
            reactions.remove(place);
        }
    }
    Ok(json!({}))
}

//! Events of the workspace, in the form of the Events API.

use std::sync::Arc;

use serde_json::{Value, json};

use super::socket::send_envelope;
use super::{BOT_USER, FakeChannelKind, FakeSlackState, FakeWorkspace, TEAM};

impl FakeChannelKind {
    pub(crate) fn history_scope(self) -> &'static str {
        match self {
            Self::Public => "channels:history",
            Self::Private => "groups:history",
            Self::Direct => "im:history",
        }
    }

    fn event_name(self) -> &'static str {
        match self {
            Self::Public => "channel",
            Self::Private => "group",
            Self::Direct => "im",
        }
    }
}

/// Stores a message, and sends its events. Returns its timestamp.
pub(crate) fn add_message(workspace: &Arc<FakeWorkspace>, channel: &str, mut message: Value) -> String {
    let ts = {
        let mut state = workspace.state();
        let ts = state.next_ts();
        message["type"] = json!("message");
        message["ts"] = json!(ts);
        message["team"] = json!(TEAM);
        if let Some(thread) = message["thread_ts"].as_str().map(str::to_owned) {
            let parent = state.message(channel, &thread).unwrap();
            parent["thread_ts"] = json!(thread);
            parent["latest_reply"] = json!(ts);
            parent["reply_count"] = json!(parent["reply_count"].as_u64().unwrap_or(0) + 1);
        }
        state.channels.get_mut(channel).unwrap().messages.push(message.clone());
        ts
    };
    // The order of the two events is not defined.
    send_mention(workspace, channel, &message);
    let mut event = message;
    event.as_object_mut().unwrap().remove("metadata");
    send_message_event(workspace, channel, &ts, event);
    ts
}

fn send_mention(workspace: &Arc<FakeWorkspace>, channel: &str, message: &Value) {
    let is_mention = message["text"].as_str().is_some_and(|text| text.contains(&format!("<@{BOT_USER}>")));
    let is_possible = {
        let state = workspace.state();
        state.channels[channel].kind != FakeChannelKind::Direct && state.scopes.contains("app_mentions:read")
    };
    if !is_mention || !is_possible || message["user"] == BOT_USER {
        return;
    }
    let mut event = json!({ "type": "app_mention", "channel": channel, "event_ts": message["ts"] });
    for key in ["user", "bot_id", "text", "ts", "team", "thread_ts", "files"] {
        if let Some(value) = message.get(key) {
            event[key] = value.clone();
        }
    }
    let ts = message["ts"].as_str().unwrap();
    send_event(workspace, ts, &event);
}

/// Sends an event of type `message`, if the bot may read the channel.
pub(crate) fn send_message_event(workspace: &Arc<FakeWorkspace>, channel: &str, ts: &str, mut event: Value) {
    {
        let state = workspace.state();
        let kind = state.channels[channel].kind;
        if !state.scopes.contains(kind.history_scope()) {
            return;
        }
        event["channel_type"] = json!(kind.event_name());
    }
    event["type"] = json!("message");
    event["channel"] = json!(channel);
    event["event_ts"] = json!(workspace.state().next_ts());
    send_event(workspace, ts, &event);
}

fn send_event(workspace: &Arc<FakeWorkspace>, ts: &str, event: &Value) {
    let payload = {
        let mut state = workspace.state();
        let payload = json!({
            "type": "event_callback", "team_id": TEAM, "api_app_id": "A1",
            "event_id": state.next_id("Ev"), "event_time": 1, "event": event,
        });
        state.events.push((ts.to_owned(), payload.clone()));
        payload
    };
    send_envelope(workspace, "events_api", &payload);
}

/// Sends all events of a message again.
pub(crate) fn send_again(workspace: &Arc<FakeWorkspace>, ts: &str) {
    let events = workspace.state().events.clone();
    for (_, payload) in events.into_iter().filter(|(of, _)| of == ts) {
        send_envelope(workspace, "events_api", &payload);
    }
}

/// Changes a message and sends the event of the change.
pub(crate) fn change_message(
    workspace: &Arc<FakeWorkspace>,
    channel: &str,
    ts: &str,
    change: impl FnOnce(&mut Value),
) {
    let (before, after) = {
        let mut state = workspace.state();
        let message = state.message(channel, ts).unwrap();
        let before = message.clone();
        change(message);
        (before, message.clone())
    };
    let event = json!({ "subtype": "message_changed", "hidden": true, "message": after,
        "previous_message": before });
    send_message_event(workspace, channel, ts, event);
}

pub(crate) fn delete_message(workspace: &Arc<FakeWorkspace>, channel: &str, ts: &str) {
    let is_thread = {
        let mut state = workspace.state();
        state.message(channel, ts).unwrap()["reply_count"].as_u64().unwrap_or(0) > 0
    };
    if is_thread {
        change_message(workspace, channel, ts, |message| {
            message["subtype"] = json!("tombstone");
            message["text"] = json!("This message was deleted.");
            message["user"] = json!("USLACKBOT");
        });
        return;
    }
    let deleted = {
        let mut state: std::sync::MutexGuard<'_, FakeSlackState> = workspace.state();
        let messages = &mut state.channels.get_mut(channel).unwrap().messages;
        let place = messages.iter().position(|message| message["ts"] == ts).unwrap();
        messages.remove(place)
    };
    let event = json!({ "subtype": "message_deleted", "hidden": true, "deleted_ts": ts,
        "previous_message": deleted });
    send_message_event(workspace, channel, ts, event);
}

//! Reads events of the Events API.

use std::collections::{HashMap, VecDeque};
use std::sync::PoisonError;
use std::time::Duration;

use cowhand_core::chat::{ChatAttachment, ChatEvent, ChatMessage, ChatPlatform, ChatUser};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::SlackConnector;
use super::dispatch::place;
use super::identity::SlackIdentity;
use super::text::{decode, mentions, unnamed_users};
use super::timestamp::time_of;

/// Number of messages that are remembered, so that the second event of a message is recognised.
const MAX_RECENT_MESSAGES: usize = 4096;
/// Number of names that are looked up for one text, and the time for all of them.
const MAX_LOOKUPS: u32 = 20;
const LOOKUP_TIME: Duration = Duration::from_secs(3);
/// Subtypes of messages that people and bots write. Others are notices, for example of people who joined.
const WRITTEN_SUBTYPES: [&str; 3] = ["bot_message", "file_share", "thread_broadcast"];

/// Kind of the event with which a message arrived. A message with a mention arrives with both kinds, in any order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventSource {
    Channel,
    Mention,
}

pub(super) struct SlackEvent {
    pub(super) event: ChatEvent,
    pub(super) source: EventSource,
}

/// Messages that were stored, with the kind of the event with which they arrived.
#[derive(Debug, Default)]
pub(super) struct RecentMessages {
    order: VecDeque<String>,
    sources: HashMap<String, EventSource>,
}

impl RecentMessages {
    pub(super) fn insert(&mut self, id: String, source: EventSource) {
        if self.sources.insert(id.clone(), source).is_none() {
            self.order.push_back(id);
        }
        if self.order.len() > MAX_RECENT_MESSAGES
            && let Some(oldest) = self.order.pop_front()
        {
            self.sources.remove(&oldest);
        }
    }

    /// Returns true if the message has already arrived with the other kind of event, and was stored.
    fn arrived_otherwise(&self, id: &str, source: EventSource) -> bool {
        self.sources.get(id).is_some_and(|&earlier| earlier != source)
    }
}

impl SlackConnector {
    /// Returns the event that is passed on; none if cowhand does not use it.
    pub(super) async fn read_event(&self, payload: &Value) -> Option<SlackEvent> {
        let event = &payload["event"];
        let identity = self.identity().await.ok()?;
        let team = payload["team_id"].as_str().unwrap_or(&identity.team);
        let kind = event["type"].as_str()?;
        if matches!(kind, "tokens_revoked" | "app_uninstalled") {
            // If the bot's token is among them, this request ends the connection.
            let _ = self.read_identity().await;
            return None;
        }
        let source = match kind {
            "message" => EventSource::Channel,
            "app_mention" => EventSource::Mention,
            _ => return None,
        };
        let channel = event["channel"].as_str()?;
        match event["subtype"].as_str() {
            Some("message_changed") => self.read_change(&identity, team, channel, event).await,
            Some("message_deleted") => {
                let ts = event["deleted_ts"].as_str()?;
                Some(SlackEvent::of(ChatEvent::Deleted { message: format!("{channel}:{ts}") }))
            }
            _ => {
                let id = format!("{channel}:{}", event["ts"].as_str()?);
                if self.recent.lock().unwrap_or_else(PoisonError::into_inner).arrived_otherwise(&id, source) {
                    return None;
                }
                let message = self.read_message(&identity, team, channel, event).await?;
                Some(SlackEvent { event: ChatEvent::Message(message), source })
            }
        }
    }

    async fn read_change(
        &self,
        identity: &SlackIdentity,
        team: &str,
        channel: &str,
        event: &Value,
    ) -> Option<SlackEvent> {
        let (message, previous) = (&event["message"], &event["previous_message"]);
        if message["subtype"] == "tombstone" {
            // A deleted message with a thread stays as a placeholder.
            let ts = message["ts"].as_str()?;
            return Some(SlackEvent::of(ChatEvent::Deleted { message: format!("{channel}:{ts}") }));
        }
        let is_same = message["text"] == previous["text"] && file_ids(message) == file_ids(previous);
        if is_same || identity.wrote(message) {
            return None;
        }
        let message = self.read_message(identity, team, channel, message).await?;
        Some(SlackEvent::of(ChatEvent::Edited(message)))
    }

    /// Reads a message of an event or of the history. Returns none for notices.
    pub(super) async fn read_message(
        &self,
        identity: &SlackIdentity,
        team: &str,
        channel: &str,
        message: &Value,
    ) -> Option<ChatMessage> {
        if message["subtype"].as_str().is_some_and(|subtype| !WRITTEN_SUBTYPES.contains(&subtype)) {
            return None;
        }
        let ts = message["ts"].as_str()?;
        let text = message["text"].as_str().unwrap_or_default();
        let thread = message["thread_ts"].as_str().filter(|&thread| thread != ts);
        Some(ChatMessage {
            platform: ChatPlatform::Slack,
            id: format!("{channel}:{ts}"),
            place: place(Some(team), channel, thread),
            author: self.author(identity, message).await,
            text: self.decode(text).await,
            mentions_bot: mentions(text, &identity.user),
            reply_to: None,
            attachments: files(message).iter().filter_map(attachment).collect(),
            sent_at: time_of(ts),
            url: identity.link(channel, ts, thread),
        })
    }

    /// Returns the text as people read it. Anybody can write many ids, so only some of them are looked up, for a limited
    /// time. The others stay ids.
    pub(super) async fn decode(&self, text: &str) -> String {
        let bot = match self.identity().await {
            Ok(identity) => identity.user.clone(),
            Err(_) => String::new(),
        };
        let mut names = HashMap::new();
        let (deadline, mut lookups) = (Instant::now() + LOOKUP_TIME, 0);
        for user in unnamed_users(text) {
            if user == bot || names.contains_key(user) {
                continue;
            }
            let mut name = self.names.cached(user).map(|(name, _)| name);
            if name.is_none() && lookups < MAX_LOOKUPS {
                lookups += 1;
                name = timeout_at(deadline, self.names.of(user)).await.ok().map(|(name, _)| name);
            }
            names.insert(user.to_owned(), name.unwrap_or_else(|| user.to_owned()));
        }
        decode(text, &bot, &names)
    }

    async fn author(&self, identity: &SlackIdentity, message: &Value) -> ChatUser {
        let (user, bot) = (message["user"].as_str(), message["bot_id"].as_str());
        let is_self = identity.wrote(message);
        let stated = message["bot_profile"]["name"].as_str().or_else(|| message["username"].as_str());
        let (name, is_known_bot) = match (user, stated) {
            (_, Some(name)) => (name.to_owned(), true),
            (Some(user), None) => self.names.of(user).await,
            (None, None) => (bot.unwrap_or_default().to_owned(), true),
        };
        let is_bot = is_self || is_known_bot || bot.is_some() || message["subtype"] == "bot_message";
        let id = user.or(bot).unwrap_or_default().to_owned();
        ChatUser { id, name, roles: Vec::new(), is_bot, bot_id: bot.map(str::to_owned), is_self }
    }
}

fn files(message: &Value) -> &[Value] {
    message["files"].as_array().map_or(&[], Vec::as_slice)
}

fn file_ids(message: &Value) -> Vec<&str> {
    files(message).iter().filter_map(|file| file["id"].as_str()).collect()
}

fn attachment(file: &Value) -> Option<ChatAttachment> {
    let text = |key: &str| file[key].as_str().unwrap_or_default();
    // Slack keeps a deleted file as a placeholder without an address.
    let url = ["url_private_download", "url_private"].map(text).into_iter().find(|url| !url.is_empty())?;
    let media_type = text("mimetype");
    Some(ChatAttachment {
        id: text("id").to_owned(),
        name: text("name").to_owned(),
        media_type: media_type.split(';').next().unwrap_or_default().trim().to_owned(),
        bytes: file["size"].as_u64().unwrap_or(0),
        url: url.to_owned(),
        is_voice: text("subtype") == "slack_audio",
    })
}

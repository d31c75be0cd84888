//! Earlier messages of a channel or a thread.

use std::collections::VecDeque;

use cowhand_core::chat::{ChatMessage, ChatPlace};
use jiff::Timestamp;
use serde_json::Value;

use super::SlackConnector;
use super::api::{CallError, CallRepeat, MethodParams};
use super::timestamp::{time_of, ts_of};
use crate::ChatError;

pub(super) const HISTORY_PAGE: usize = 200;
/// Maximum number of pages of a history that are read.
pub(super) const MAX_HISTORY_PAGES: usize = 50;

/// Page of a list of messages, in the order of Slack: newest first in a channel, oldest first in a thread.
pub(super) struct MessagePage {
    pub(super) messages: Vec<Value>,
    pub(super) next: Option<String>,
}

impl SlackConnector {
    pub(super) async fn read_history(
        &self,
        place: &ChatPlace,
        after: Option<Timestamp>,
        before: Option<Timestamp>,
        limit: usize,
    ) -> Result<Vec<ChatMessage>, ChatError> {
        let identity = self.identity().await?;
        let team = place.space.as_deref().unwrap_or(&identity.team);
        let mut params = MethodParams::new();
        params.extend(after.map(|after| ("oldest", ts_of(after))));
        params.extend(before.map(|before| ("latest", ts_of(before))));
        let mut found = VecDeque::new();
        let mut cursor = None;
        for _ in 0..MAX_HISTORY_PAGES {
            let page = self.message_page(place, params.clone(), HISTORY_PAGE, cursor).await?;
            for message in &page.messages {
                // Slack adds the first message of a thread to each page.
                let sent_at = time_of(message["ts"].as_str().unwrap_or_default());
                let is_outside = after.is_some_and(|after| sent_at <= after)
                    || before.is_some_and(|before| sent_at >= before);
                if is_outside || is_full(place, &found, limit) {
                    continue;
                }
                let message = self.read_message(&identity, team, &place.channel, message).await;
                let Some(message) = message else { continue };
                if place.thread.is_none() {
                    found.push_front(message);
                    continue;
                }
                if found.iter().all(|other: &ChatMessage| other.id != message.id) {
                    found.push_back(message);
                }
                if found.len() > limit {
                    found.pop_front();
                }
            }
            cursor = page.next;
            if cursor.is_none() || is_full(place, &found, limit) {
                break;
            }
        }
        Ok(found.into())
    }

    /// Requests one page. In a thread, the oldest message comes first, so the newest messages are on the last page.
    pub(super) async fn message_page(
        &self,
        place: &ChatPlace,
        mut params: MethodParams,
        page_length: usize,
        cursor: Option<String>,
    ) -> Result<MessagePage, CallError> {
        params.push(("channel", place.channel.clone()));
        params.push(("limit", page_length.to_string()));
        params.extend(cursor.map(|cursor| ("cursor", cursor)));
        let method = match &place.thread {
            Some(thread) => {
                params.push(("ts", thread.clone()));
                "conversations.replies"
            }
            None => "conversations.history",
        };
        let mut answer = self.api.call(method, &params, CallRepeat::Always).await?;
        let next = answer["response_metadata"]["next_cursor"].as_str();
        let next = next.filter(|next| !next.is_empty()).map(str::to_owned);
        let messages = match answer["messages"].take() {
            Value::Array(messages) => messages,
            _ => Vec::new(),
        };
        Ok(MessagePage { messages, next })
    }
}

fn is_full(place: &ChatPlace, found: &VecDeque<ChatMessage>, limit: usize) -> bool {
    place.thread.is_none() && found.len() >= limit
}

//! Messages of a channel and of its threads since a given time.

use cowhand_core::chat::{ChatMessage, ChatPlace};
use jiff::Timestamp;

use super::SlackConnector;
use super::api::MethodParams;
use super::history::{HISTORY_PAGE, MAX_HISTORY_PAGES};
use super::timestamp::time_of;
use crate::ChatError;

impl SlackConnector {
    /// Reads the missed messages of a channel and of its threads. Slack lists a thread only with its first message,
    /// which can be older than the missed messages. Therefore at least one page is read: its messages state when their
    /// threads got the last reply.
    pub(super) async fn read_missed(
        &self,
        channel: &ChatPlace,
        threads: &[String],
        after: Timestamp,
        limit: usize,
    ) -> Result<Vec<ChatMessage>, ChatError> {
        let identity = self.identity().await?;
        let team = channel.space.as_deref().unwrap_or(&identity.team);
        let (mut missed, mut active, mut oldest) = (Vec::new(), Vec::new(), Timestamp::MAX);
        let mut cursor = None;
        for _ in 0..MAX_HISTORY_PAGES {
            let page = self.message_page(channel, MethodParams::new(), HISTORY_PAGE, cursor).await?;
            for message in &page.messages {
                let ts = message["ts"].as_str().unwrap_or_default();
                oldest = time_of(ts);
                if time_of(message["latest_reply"].as_str().unwrap_or_default()) > after {
                    active.push(ts.to_owned());
                }
                if oldest > after {
                    missed.extend(self.read_message(&identity, team, &channel.channel, message).await);
                }
            }
            cursor = page.next;
            if cursor.is_none() || oldest <= after || missed.len() >= limit {
                break;
            }
        }
        let is_old = |thread: &&String| time_of(thread) < oldest;
        active.extend(threads.iter().filter(is_old).cloned());
        for thread in active {
            let place = ChatPlace { thread: Some(thread), ..channel.clone() };
            match self.read_history(&place, Some(after), None, limit).await {
                Ok(replies) => missed.extend(replies),
                // The first message of the thread was deleted.
                Err(ChatError::Refused { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        missed.sort_by(|one, other| (one.sent_at, &one.id).cmp(&(other.sent_at, &other.id)));
        // A reply that was also sent to the channel is in both lists.
        missed.dedup_by(|one, other| one.id == other.id);
        missed.drain(..missed.len().saturating_sub(limit));
        Ok(missed)
    }
}

//! The chat message that caused a job.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::chat_platform::ChatPlatform;
use crate::trigger::{FiringContext, Task};

/// The chat message that caused a job: who wrote it, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OriginMessage {
    pub platform: ChatPlatform,
    /// Id of the message on the platform.
    pub id: String,
    pub channel: String,
    /// Thread of the channel in which the message was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// Id of the author on the platform.
    pub author: String,
    /// Name that the author has chosen; absent if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author_name: Option<String>,
    /// Name of the person who ran the message again; absent if it was not repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retried_by: Option<String>,
    /// Link to the message; absent if the platform gave none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

impl OriginMessage {
    /// Returns the message of a firing; none if no chat message caused it.
    pub fn of(context: &FiringContext) -> Option<Self> {
        context.chat.as_ref()?;
        let Task { source_id, url, metadata, .. } = &context.task;
        let text = |key: &str| metadata.get(key).filter(|value| !value.is_empty()).cloned();
        Some(Self {
            platform: text("platform")?.parse().ok()?,
            id: source_id.clone(),
            channel: text("channel")?,
            thread: text("thread"),
            author: text("author")?,
            author_name: text("author_name"),
            retried_by: text("retried_by"),
            url: Some(url.clone()).filter(|url| !url.is_empty()),
        })
    }

    /// Returns the name and the id of the author: `Ann (UANN)`.
    pub fn author_in_words(&self) -> String {
        match &self.author_name {
            Some(name) if *name != self.author => format!("{name} ({})", self.author),
            _ => self.author.clone(),
        }
    }
}

impl fmt::Display for OriginMessage {
    /// Writes the author and the place, for example `Ann (UANN) on slack in C1` or `Ann (UANN) on slack in C1, retried by
    /// Bob`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {} in {}", self.author_in_words(), self.platform, self.channel)?;
        self.retried_by.as_ref().map_or(Ok(()), |person| write!(f, ", retried by {person}"))
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::chat::posting::MessageDetails;
    use crate::delivery::{Delivery, Message, Webhook};

    #[test]
    fn only_a_chat_message_is_the_message_of_a_job() {
        let retried = |message: Delivery, by: &str| match message {
            Delivery::Chat(mut message) => {
                message.details.retried_by = by.into();
                Delivery::Chat(message)
            }
            other @ Delivery::Webhook(_) => other,
        };
        let message = |name: &str, url: &str| {
            Delivery::Chat(Message {
                platform: ChatPlatform::Slack,
                id: "C1:1.2".into(),
                channel: "C1".into(),
                thread: None,
                author: "UANN".into(),
                text: "hello".into(),
                url: url.into(),
                details: MessageDetails { author_name: name.into(), ..MessageDetails::default() },
            })
        };
        let payload = serde_json::json!({"platform": "slack", "sender": {"login": "ann"}});
        let webhook = Webhook { id: "1".into(), event: "issues".into(), payload };
        for (delivery, expected, url) in [
            (message("Ann", "https://x/1"), Some("Ann (UANN) on slack in C1"), Some("https://x/1")),
            (message("UANN", ""), Some("UANN on slack in C1"), None),
            (retried(message("", ""), "Bob"), Some("UANN on slack in C1, retried by Bob"), None),
            (message("", ""), Some("UANN on slack in C1"), None),
            (Delivery::Webhook(webhook), None, None),
        ] {
            let found = OriginMessage::of(&delivery.firing_context(Timestamp::UNIX_EPOCH));
            assert_eq!(found.as_ref().map(ToString::to_string).as_deref(), expected);
            assert_eq!(found.and_then(|found| found.url).as_deref(), url);
        }
    }
}

//! Numbers of open answers and of stored messages that are not handled, for `status` and the metrics.

use std::collections::HashMap;

use cowhand_core::chat::ChatPlatform;
use cowhand_core::id::AgentName;

use super::database::db::args;
use super::database::dialect::statements;
use super::{Store, StoreError};

statements! {
    OPEN_CHAT_ANSWERS = same "select agent, platform, count(*) as answers from chat_answers where state = 'open' \
        group by agent, platform";
    UNHANDLED_CHAT_MESSAGES = same "select bot, count(*) as messages from chat_messages where body is not null group by bot";
}

/// Numbers of incomplete answers and unhandled messages of chats.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChatCounts {
    /// Number of answers that are not complete, by agent and platform.
    pub open_answers: HashMap<(AgentName, ChatPlatform), u32>,
    /// Number of stored messages that are not handled, by the key of [`crate::ChatBotRecord::inbox`].
    pub unhandled_messages: HashMap<String, u32>,
}

impl Store {
    pub async fn chat_counts(&self) -> Result<ChatCounts, StoreError> {
        self.read(|tx| {
            Box::pin(async move {
                let mut counts = ChatCounts::default();
                for row in tx.all(OPEN_CHAT_ANSWERS, args![]).await? {
                    let of = (row.parse("agent")?, row.parse("platform")?);
                    counts.open_answers.insert(of, row.count("answers")?);
                }
                for row in tx.all(UNHANDLED_CHAT_MESSAGES, args![]).await? {
                    counts.unhandled_messages.insert(row.get("bot")?, row.count("messages")?);
                }
                Ok(counts)
            })
        })
        .await
    }
}

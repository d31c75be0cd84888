//! Conversations: which messages share a session, and where their answers are posted.

use cowhand_core::chat::{ChatMessage, ChatPlace, ChatPlatform};
use cowhand_core::delivery::conversation;
use cowhand_core::id::AgentName;

use cowhand_store::{Store, StoreError};

/// The conversation of a message with an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Conversation {
    /// Name of the conversation. A reset does not change it.
    pub(super) name: String,
    /// True if the agent has answered in it.
    pub(super) is_begun: bool,
}

impl Conversation {
    /// Returns the conversation of a place. A thread below a message that the agent has answered belongs to the
    /// conversation of that message.
    pub(super) async fn of(
        store: &Store,
        agent: &AgentName,
        platform: ChatPlatform,
        place: &ChatPlace,
    ) -> Result<Self, StoreError> {
        let own = conversation(platform, &place.channel, place.thread.as_deref());
        let Some(thread) = &place.thread else {
            let is_begun = is_begun(store, agent, &own).await?;
            return Ok(Self { name: own, is_begun });
        };
        let answers = store.chat_answers_of_message(first_message(platform, &place.channel, thread)).await?;
        if let Some(answer) = answers.into_iter().find(|answer| answer.agent == *agent) {
            return Ok(Self { name: answer.conversation, is_begun: true });
        }
        let is_begun = is_begun(store, agent, &own).await?;
        Ok(Self { name: own, is_begun })
    }

    /// Returns the text from which the session key of a job is derived. After a reset, it differs from all earlier
    /// texts.
    pub(super) async fn chat(&self, store: &Store, agent: &AgentName) -> Result<String, StoreError> {
        let resets = store.chat_resets(agent.clone(), self.name.clone()).await?;
        Ok(if resets == 0 { self.name.clone() } else { format!("{} {resets}", self.name) })
    }
}

async fn is_begun(store: &Store, agent: &AgentName, name: &str) -> Result<bool, StoreError> {
    Ok(!store.chat_answers_of_conversation(agent.clone(), name.to_owned(), 1).await?.is_empty())
}

/// Returns the id of the message from which a thread was started.
fn first_message(platform: ChatPlatform, channel: &str, thread: &str) -> String {
    match platform {
        ChatPlatform::Slack => format!("{channel}:{thread}"),
        ChatPlatform::Discord => thread.to_owned(),
    }
}

/// Returns the place in which a message is answered. On Slack, a message of a channel is answered in a thread below it.
pub(super) fn answer_place(message: &ChatMessage) -> ChatPlace {
    let place = message.place.clone();
    let is_top_level = place.thread.is_none() && !place.is_direct;
    match message.platform {
        ChatPlatform::Slack if is_top_level => {
            let ts = message.id.rsplit_once(':').map(|(_, ts)| ts.to_owned());
            ChatPlace { thread: ts, ..place }
        }
        ChatPlatform::Slack | ChatPlatform::Discord => place,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cowhand_core::chat::ChatUser;
    use jiff::Timestamp;

    #[test]
    fn slack_answers_in_a_thread_and_discord_in_the_channel() {
        use ChatPlatform::{Discord, Slack};
        let message = |platform, thread: Option<&str>, is_direct| ChatMessage {
            platform,
            id: "C1:17.5".into(),
            place: ChatPlace {
                space: None,
                channel: "C1".into(),
                thread: thread.map(str::to_owned),
                is_direct,
            },
            author: ChatUser {
                id: "U1".into(),
                name: "jo".into(),
                roles: Vec::new(),
                is_bot: false,
                bot_id: None,
                is_self: false,
            },
            text: String::new(),
            mentions_bot: true,
            reply_to: None,
            attachments: Vec::new(),
            sent_at: Timestamp::UNIX_EPOCH,
            url: String::new(),
        };
        for (platform, thread, is_direct, expected) in [
            (Slack, None, false, Some("17.5")),
            (Slack, None, true, None),
            (Slack, Some("9.1"), false, Some("9.1")),
            (Discord, None, false, None),
            (Discord, Some("77"), false, Some("77")),
        ] {
            let place = answer_place(&message(platform, thread, is_direct));
            assert_eq!(place.thread.as_deref(), expected, "{platform} {thread:?} {is_direct}");
        }
    }
}

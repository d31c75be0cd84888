//! Chat: messages, commands and buttons that people send on a chat platform, and the rules that apply to them.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub mod access;
pub mod attachment;
pub mod command;
pub mod escape;
pub mod markdown;
mod message_order;
pub mod posting;
pub mod prompt;
pub mod render;
pub mod reply;
pub mod sending;
pub mod settings;
pub mod split;
pub mod texts;

pub use crate::chat_platform::ChatPlatform;

/// Message that somebody wrote in a chat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatMessage {
    pub platform: ChatPlatform,
    /// Id that is unique on the platform: `CHANNEL:TS` on Slack, the id of the message on Discord.
    pub id: String,
    pub place: ChatPlace,
    pub author: ChatUser,
    /// Text without the mention of the bot. Links, other mentions and entities are decoded to readable text.
    pub text: String,
    /// True if the message mentions the bot. On Discord, also if it mentions a role of the bot, or if it is a reply
    /// that notifies the bot.
    pub mentions_bot: bool,
    /// Id of the message to which this is a reply. On Slack, replies are messages of a thread.
    #[serde(default)]
    pub reply_to: Option<String>,
    pub attachments: Vec<ChatAttachment>,
    pub sent_at: Timestamp,
    /// Link to the message; empty if the platform gives none.
    pub url: String,
}

/// Place on a platform: where a message was written, or where an answer is posted.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ChatPlace {
    /// Guild on Discord, team on Slack; none for direct messages on Discord.
    pub space: Option<String>,
    /// Channel. For a thread on Discord it is the channel that contains the thread.
    pub channel: String,
    /// Thread: the `thread_ts` on Slack, the channel of the thread on Discord; none outside a thread.
    pub thread: Option<String>,
    /// True for a conversation of one person with the bot.
    pub is_direct: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ChatUser {
    pub id: String,
    /// Name for people; the id if the name is not known.
    pub name: String,
    /// Roles of the user in the guild on Discord.
    pub roles: Vec<String>,
    pub is_bot: bool,
    /// Id of the app on Slack (`B…`), if the user is a bot that also has an id as a user (`U…`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bot_id: Option<String>,
    /// True if the user is the bot of this connection.
    pub is_self: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatAttachment {
    pub id: String,
    pub name: String,
    /// Media type without parameters, for example `text/plain`; empty if the platform states none.
    pub media_type: String,
    pub bytes: u64,
    pub url: String,
    /// True for a recorded voice message.
    pub is_voice: bool,
}

/// Event of a connection to a platform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChatEvent {
    /// The connection is established, for the first time or again. Earlier events may be missing.
    Connected(BotAccount),
    Message(ChatMessage),
    /// A message was edited; the message has its new text.
    Edited(ChatMessage),
    Deleted {
        /// Id as in [`ChatMessage::id`].
        message: String,
    },
    Command(CommandCall),
    /// A person fills in an option of a slash command.
    Suggest(SuggestionRequest),
    Button(ButtonPress),
}

/// Account of the bot on the platform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BotAccount {
    pub id: String,
    pub name: String,
}

/// Call of a slash command. On Discord, `name` is one of cowhand's commands. On Slack, `name` is the slash command of
/// the app, and `argument` begins with the name of one of cowhand's commands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandCall {
    /// Id of the call, unique on the platform.
    pub id: String,
    pub place: ChatPlace,
    pub user: ChatUser,
    pub name: String,
    /// Text after the command; empty on Discord.
    pub argument: String,
    /// Names and values of the options, in the order in which the platform sends them; empty on Slack.
    pub options: Vec<(String, String)>,
}

/// Request for values that a person may choose for an option of a slash command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuggestionRequest {
    /// The command as far as it is written.
    pub call: CommandCall,
    /// Option that the person fills in.
    pub option: String,
    /// Text that the person has written so far.
    pub typed: String,
}

/// Press of a button in a message of the bot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ButtonPress {
    /// Id of the press, unique on the platform.
    pub id: String,
    pub place: ChatPlace,
    pub user: ChatUser,
    /// Id of the message with the button, as in [`ChatMessage::id`].
    pub message: String,
    /// Value of the button. Anybody can send any value.
    pub value: String,
}

#[cfg(test)]
mod large_texts;

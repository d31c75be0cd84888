//! The parts of Discord's objects that the connector uses. Only the fields without a default are required, and unknown
//! fields are ignored. So no message is lost when Discord adds a field or a type.

use cowhand_core::chat::BotAccount;
use jiff::Timestamp;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

#[derive(Debug, Clone, Deserialize)]
pub(super) struct DiscordMessage {
    pub(super) id: String,
    pub(super) channel_id: String,
    #[serde(default)]
    pub(super) guild_id: Option<String>,
    /// None in some updates.
    #[serde(default)]
    pub(super) author: Option<DiscordUser>,
    #[serde(default)]
    pub(super) member: Option<DiscordMember>,
    #[serde(default)]
    pub(super) content: String,
    pub(super) timestamp: Timestamp,
    #[serde(default)]
    pub(super) edited_timestamp: Option<Timestamp>,
    #[serde(default, rename = "type")]
    pub(super) kind: u64,
    #[serde(default)]
    pub(super) mentions: Vec<DiscordUser>,
    #[serde(default)]
    pub(super) mention_roles: Vec<String>,
    #[serde(default)]
    pub(super) attachments: Vec<DiscordAttachment>,
    #[serde(default)]
    pub(super) embeds: Vec<DiscordEmbed>,
    #[serde(default)]
    pub(super) flags: u64,
    #[serde(default)]
    pub(super) webhook_id: Option<String>,
    /// A text or a number, as the client that sent the message chose it.
    #[serde(default)]
    pub(super) nonce: Value,
    #[serde(default)]
    pub(super) message_reference: Option<DiscordReference>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct DiscordUser {
    pub(super) id: String,
    #[serde(default)]
    pub(super) username: String,
    #[serde(default)]
    pub(super) global_name: Option<String>,
    #[serde(default)]
    pub(super) bot: bool,
    /// Only in the mentions of a message.
    #[serde(default)]
    pub(super) member: Option<Box<DiscordMember>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct DiscordMember {
    #[serde(default)]
    pub(super) nick: Option<String>,
    #[serde(default)]
    pub(super) roles: Vec<String>,
    /// Set in the members of a guild and in the `member` of an interaction; missing in the `member` of a message.
    #[serde(default)]
    pub(super) user: Option<DiscordUser>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct DiscordAttachment {
    pub(super) id: String,
    #[serde(default)]
    pub(super) filename: String,
    #[serde(default)]
    pub(super) content_type: Option<String>,
    #[serde(default)]
    pub(super) size: u64,
    #[serde(default)]
    pub(super) url: String,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct DiscordEmbed {
    #[serde(default)]
    pub(super) title: Option<String>,
    #[serde(default)]
    pub(super) description: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct DiscordReference {
    #[serde(default)]
    pub(super) message_id: Option<String>,
}

/// Channel or thread.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct DiscordChannel {
    pub(super) id: String,
    #[serde(default, rename = "type")]
    pub(super) kind: u64,
    #[serde(default)]
    pub(super) guild_id: Option<String>,
    #[serde(default)]
    pub(super) parent_id: Option<String>,
    /// Id of the last message. The message may have been deleted.
    #[serde(default)]
    pub(super) last_message_id: Option<String>,
    #[serde(default)]
    pub(super) name: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct DiscordRole {
    pub(super) id: String,
    #[serde(default)]
    pub(super) name: String,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct DiscordInteraction {
    pub(super) id: String,
    pub(super) application_id: String,
    pub(super) token: String,
    #[serde(rename = "type")]
    pub(super) kind: u64,
    #[serde(default)]
    pub(super) guild_id: Option<String>,
    #[serde(default)]
    pub(super) channel_id: Option<String>,
    #[serde(default)]
    pub(super) channel: Option<DiscordChannel>,
    /// The user, in a guild.
    #[serde(default)]
    pub(super) member: Option<DiscordMember>,
    /// The user, in direct messages.
    #[serde(default)]
    pub(super) user: Option<DiscordUser>,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(super) data: InteractionData,
    /// The message with the button.
    #[serde(default)]
    pub(super) message: Option<DiscordMessage>,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct InteractionData {
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) custom_id: String,
    #[serde(default)]
    pub(super) options: Vec<InteractionOption>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct InteractionOption {
    pub(super) name: String,
    #[serde(default)]
    pub(super) value: Value,
    /// True for the option that a person fills in.
    #[serde(default)]
    pub(super) focused: bool,
}

#[derive(Debug, Deserialize)]
pub(super) struct DiscordReady {
    pub(super) user: DiscordUser,
    pub(super) application: DiscordId,
    #[serde(default)]
    pub(super) guilds: Vec<DiscordId>,
}

#[derive(Debug, Deserialize)]
pub(super) struct DiscordId {
    pub(super) id: String,
}

impl DiscordReady {
    pub(super) fn bot(&self) -> BotAccount {
        BotAccount { id: self.user.id.clone(), name: self.user.shown_name().to_owned() }
    }
}

impl DiscordUser {
    /// Returns the name that Discord shows outside guilds.
    pub(super) fn shown_name(&self) -> &str {
        let name = self.global_name.as_deref().unwrap_or(&self.username);
        if name.is_empty() { &self.id } else { name }
    }
}

impl DiscordChannel {
    /// Returns true for announcement threads, public threads and private threads.
    pub(super) const fn is_thread(&self) -> bool {
        matches!(self.kind, 10..=12)
    }
}

fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

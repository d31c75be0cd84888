//! The objects of the platform as JSON.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::BOT_ID;
use super::state::{FakeDiscordFile, FakeDiscordMessage, FakeDiscordState, time_of};

/// Flag of a recorded voice message.
const VOICE_MESSAGE: u64 = 1 << 13;

impl FakeDiscordState {
    pub(super) fn user_json(&self, id: &str) -> Value {
        let user = &self.users[id];
        json!({
            "id": id,
            "username": user.name,
            "global_name": null,
            "discriminator": "0",
            "avatar": null,
            "bot": user.is_bot,
            "public_flags": 0,
        })
    }

    /// A member without the user.
    pub(super) fn member_json(&self, id: &str) -> Value {
        json!({
            "roles": self.users[id].roles,
            "nick": null,
            "avatar": null,
            "joined_at": "2026-01-01T00:00:00.000000+00:00",
            "premium_since": null,
            "deaf": false,
            "mute": false,
            "flags": 0,
            "pending": false,
            "permissions": "2147551232",
        })
    }

    pub(super) fn full_member_json(&self, id: &str) -> Value {
        let mut member = self.member_json(id);
        member["user"] = self.user_json(id);
        member
    }

    pub(super) fn channel_json(&self, id: &str) -> Value {
        let channel = &self.channels[id];
        let last_message = self.messages.iter().rev().find(|(_, message)| message.channel == id);
        let last_message = last_message.map(|(id, _)| id.to_string());
        if let Some(direct) = &channel.direct {
            let recipients = [self.user_json(&direct.user)];
            return json!({ "id": id, "type": 1, "last_message_id": last_message, "recipients": recipients });
        }
        let mut value = json!({
            "id": id,
            "type": 0,
            "guild_id": channel.guild,
            "name": channel.name,
            "parent_id": channel.parent,
            "position": 0,
            "permission_overwrites": [],
            "nsfw": false,
            "topic": null,
            "last_message_id": last_message,
            "rate_limit_per_user": 0,
        });
        if channel.parent.is_some() {
            value["type"] = json!(11);
            value["owner_id"] = json!(BOT_ID);
            value["message_count"] = json!(0);
            value["member_count"] = json!(1);
            value["thread_metadata"] = json!({
                "archived": false,
                "auto_archive_duration": 1440,
                "archive_timestamp": "2026-01-01T00:00:00.000000+00:00",
                "locked": false,
            });
        }
        value
    }

    pub(super) fn role_json(&self, id: &str) -> Value {
        let (name, permissions) = match self.roles.get(id) {
            Some(role) => (role.name.as_str(), "0"),
            None => ("@everyone", "2147551232"),
        };
        json!({
            "id": id,
            "name": name,
            "color": 0,
            "colors": { "primary_color": 0, "secondary_color": null, "tertiary_color": null },
            "hoist": false,
            "icon": null,
            "unicode_emoji": null,
            "position": 0,
            "permissions": permissions,
            "managed": false,
            "mentionable": true,
            "flags": 0,
        })
    }

    /// A guild, as a bot gets it.
    pub(super) fn guild_json(&self, id: &str, bot: &str) -> Value {
        let is_here = |guild: &Option<String>| guild.as_deref() == Some(id);
        let channels = |is_thread: bool| -> Vec<Value> {
            let here = self.channels.iter().filter(|(_, channel)| is_here(&channel.guild));
            let chosen = here.filter(|(_, channel)| channel.parent.is_some() == is_thread);
            chosen.map(|(id, _)| self.channel_json(id)).collect()
        };
        let roles = self.roles.iter().filter(|(_, role)| role.guild == id).map(|(role, _)| role.as_str());
        let roles: Vec<Value> = std::iter::once(id).chain(roles).map(|role| self.role_json(role)).collect();
        json!({
            "id": id,
            "name": self.guilds[id].name,
            "icon": null,
            "owner_id": BOT_ID,
            "afk_channel_id": null,
            "afk_timeout": 300,
            "verification_level": 0,
            "default_message_notifications": 0,
            "explicit_content_filter": 0,
            "roles": roles,
            "emojis": [],
            "features": [],
            "mfa_level": 0,
            "application_id": null,
            "system_channel_id": null,
            "system_channel_flags": 0,
            "rules_channel_id": null,
            "vanity_url_code": null,
            "description": null,
            "banner": null,
            "premium_tier": 0,
            "preferred_locale": "en-US",
            "public_updates_channel_id": null,
            "nsfw_level": 0,
            "premium_progress_bar_enabled": false,
            "safety_alerts_channel_id": null,
            "joined_at": "2026-01-01T00:00:00.000000+00:00",
            "large": false,
            "unavailable": false,
            "member_count": self.users.len(),
            "voice_states": [],
            // Without the intent for members, Discord states only the bot.
            "members": [self.full_member_json(bot)],
            "channels": channels(false),
            "threads": channels(true),
            "presences": [],
            "stage_instances": [],
            "guild_scheduled_events": [],
            "stickers": [],
        })
    }

    /// A message as the history returns it to a bot: without guild, member and nonce.
    pub(super) fn message_json(&self, message: &FakeDiscordMessage, bot: &str) -> Value {
        let mentions: Vec<Value> = message
            .mentioned_users
            .iter()
            .map(|id| {
                let mut user = self.user_json(id);
                if self.guild_of(&message.channel).is_some() {
                    user["member"] = self.member_json(id);
                }
                user
            })
            .collect();
        let is_voice = message.flags & VOICE_MESSAGE != 0;
        let files: Vec<Value> = message.files.iter().map(|file| self.file_json(file, is_voice)).collect();
        let mut value = json!({
            "id": message.id,
            "channel_id": message.channel,
            "type": if message.reply_to.is_some() { 19 } else { 0 },
            "author": self.user_json(&message.author),
            "content": message.content,
            "timestamp": stamp(time_of(&message.id)),
            "edited_timestamp": message.edited_at.map(stamp),
            "tts": false,
            "mention_everyone": message.mentions_everyone,
            "mentions": mentions,
            "mention_roles": message.mentioned_roles,
            "attachments": files,
            "embeds": list(&message.embeds),
            "components": list(&message.components),
            "pinned": false,
            "flags": message.flags,
        });
        if let Some(reply_to) = &message.reply_to {
            value["message_reference"] = json!({
                "type": 0,
                "message_id": reply_to,
                "channel_id": message.channel,
                "guild_id": self.guild_of(&message.channel),
            });
            let replied = self.message(reply_to);
            value["referenced_message"] = replied
                .map(|replied| {
                    let replied = FakeDiscordMessage { reply_to: None, ..replied.clone() };
                    self.message_json(&replied, bot)
                })
                .unwrap_or_default();
        }
        if !message.reactions.is_empty() {
            let reaction = |(emoji, user): &(String, String)| {
                json!({
                    "count": 1,
                    "count_details": { "burst": 0, "normal": 1 },
                    "me": user == bot,
                    "me_burst": false,
                    "burst_colors": [],
                    "emoji": { "id": null, "name": emoji },
                })
            };
            value["reactions"] = message.reactions.iter().map(reaction).collect();
        }
        value
    }

    fn file_json(&self, file: &FakeDiscordFile, is_voice: bool) -> Value {
        let mut value = json!({
            "id": file.id,
            "filename": file.name,
            "size": self.stated_file_size.unwrap_or(file.content.len()),
            "url": file.url,
            "proxy_url": file.url,
            "content_type": file.media_type,
        });
        if is_voice {
            value["duration_secs"] = json!(1.5);
            value["waveform"] = json!("AAAA");
        }
        value
    }
}

fn list(value: &Value) -> Value {
    if value.is_array() { value.clone() } else { json!([]) }
}

/// Writes a time as Discord does.
fn stamp(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6f+00:00").to_string()
}

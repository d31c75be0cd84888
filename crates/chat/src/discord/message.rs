//! Converts messages of Discord to messages of cowhand.

use cowhand_core::chat::{ChatAttachment, ChatMessage, ChatPlace, ChatPlatform, ChatUser};

use super::directory::{Directory, conversation_of};
use super::wire::{DiscordAttachment, DiscordMember, DiscordMessage, DiscordUser};

/// Types of messages that people write: a message and a reply. All other types are notices of the platform.
const WRITTEN_TYPES: [u64; 2] = [0, REPLY];
const REPLY: u64 = 19;
/// Flag of a recorded voice message.
const VOICE_MESSAGE: u64 = 1 << 13;

/// Converts a message. Returns none for notices of the platform and for messages without an author.
///
/// `roles` are the roles of the author. A reply to the bot mentions it only if the reply notifies the bot; its author
/// can choose that.
pub(super) fn chat_message(
    message: &DiscordMessage,
    place: ChatPlace,
    directory: &Directory,
    bot: &str,
    roles: Vec<String>,
) -> Option<ChatMessage> {
    let author = message.author.as_ref()?;
    if !WRITTEN_TYPES.contains(&message.kind) {
        return None;
    }
    let is_bots_role =
        |role: &str| place.space.as_ref().is_some_and(|guild| directory.bot_has_role(guild, role));
    let mentions_bot = message.mentions.iter().any(|user| user.id == bot)
        || message.mention_roles.iter().any(|role| is_bots_role(role));
    let text = readable_text(&message.content, |mention| match mention {
        Mention::User(id) if id == bot => Some(String::new()),
        Mention::User(id) => {
            let user = message.mentions.iter().find(|user| user.id == id)?;
            Some(format!("@{}", user_name(user, user.member.as_deref())))
        }
        Mention::Role(id) if is_bots_role(id) => Some(String::new()),
        Mention::Role(id) => Some(format!("@{}", directory.role_name(id)?)),
        Mention::Channel(id) => Some(format!("#{}", directory.channel_name(id)?)),
        Mention::Emoji(name) => Some(format!(":{name}:")),
    });
    let text = if text.is_empty() { embed_text(message) } else { text };
    let is_voice = message.flags & VOICE_MESSAGE != 0;
    Some(ChatMessage {
        platform: ChatPlatform::Discord,
        id: message.id.clone(),
        author: ChatUser {
            is_bot: author.bot || message.webhook_id.is_some(),
            ..chat_user(author, message.member.as_ref(), roles, bot)
        },
        text,
        mentions_bot,
        reply_to: replied_message(message),
        attachments: message.attachments.iter().map(|file| chat_attachment(file, is_voice)).collect(),
        sent_at: message.timestamp,
        url: message_url(&place, &message.id),
        place,
    })
}

/// Returns the id of the message that a reply answers. A forwarded message also refers to another message, but is no
/// reply.
fn replied_message(message: &DiscordMessage) -> Option<String> {
    let reference = message.message_reference.as_ref().filter(|_| message.kind == REPLY)?;
    reference.message_id.clone()
}

pub(super) fn chat_user(
    user: &DiscordUser,
    member: Option<&DiscordMember>,
    roles: Vec<String>,
    bot: &str,
) -> ChatUser {
    ChatUser {
        id: user.id.clone(),
        name: user_name(user, member),
        roles,
        is_bot: user.bot,
        bot_id: None,
        is_self: user.id == bot,
    }
}

fn user_name(user: &DiscordUser, member: Option<&DiscordMember>) -> String {
    let nick = member.and_then(|member| member.nick.as_deref()).filter(|nick| !nick.is_empty());
    nick.unwrap_or_else(|| user.shown_name()).to_owned()
}

fn chat_attachment(file: &DiscordAttachment, is_voice: bool) -> ChatAttachment {
    let media_type = file.content_type.as_deref().unwrap_or_default();
    ChatAttachment {
        id: file.id.clone(),
        name: file.filename.clone(),
        media_type: media_type.split(';').next().unwrap_or_default().trim().to_owned(),
        bytes: file.size,
        url: file.url.clone(),
        is_voice,
    }
}

fn message_url(place: &ChatPlace, message: &str) -> String {
    let space = place.space.as_deref().unwrap_or("@me");
    format!("https://discord.com/channels/{space}/{}/{message}", conversation_of(place))
}

/// Returns the text of the embeds, for messages of bots that have no other text.
fn embed_text(message: &DiscordMessage) -> String {
    let parts = message.embeds.iter().flat_map(|embed| [&embed.title, &embed.description]);
    parts.flatten().map(String::as_str).collect::<Vec<_>>().join("\n")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mention<'a> {
    User(&'a str),
    Role(&'a str),
    Channel(&'a str),
    Emoji(&'a str),
}

/// Replaces the notation of mentions and emoji by what `replacement` returns. A mention without a replacement stays as
/// it is. If a mention is replaced by an empty text, one of the spaces around it is removed too.
fn readable_text(content: &str, replacement: impl Fn(Mention<'_>) -> Option<String>) -> String {
    let mut text = String::with_capacity(content.len());
    let mut rest = content;
    while let Some(start) = rest.find('<') {
        text.push_str(&rest[..start]);
        rest = &rest[start..];
        let found = mention_at(rest).and_then(|(mention, length)| Some((replacement(mention)?, length)));
        let Some((shown, length)) = found else {
            text.push('<');
            rest = &rest[1..];
            continue;
        };
        text.push_str(&shown);
        rest = &rest[length..];
        if shown.is_empty() && (text.is_empty() || text.ends_with([' ', '\n'])) {
            rest = rest.strip_prefix(' ').unwrap_or(rest);
        }
    }
    text.push_str(rest);
    text.trim().to_owned()
}

/// Returns the mention with which a text begins, and its length.
fn mention_at(text: &str) -> Option<(Mention<'_>, usize)> {
    let inner = &text[1..text.find('>')?];
    let length = inner.len() + 2;
    let is_id = |id: &str| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit());
    let mention = if let Some(id) = inner.strip_prefix("@&") {
        is_id(id).then_some(Mention::Role(id))
    } else if let Some(id) = inner.strip_prefix('@') {
        let id = id.strip_prefix('!').unwrap_or(id);
        is_id(id).then_some(Mention::User(id))
    } else if let Some(id) = inner.strip_prefix('#') {
        is_id(id).then_some(Mention::Channel(id))
    } else {
        let emoji = inner.strip_prefix("a:").or_else(|| inner.strip_prefix(':'))?;
        let (name, id) = emoji.split_once(':')?;
        is_id(id).then_some(Mention::Emoji(name))
    };
    Some((mention?, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mentions_become_readable() {
        let cases = [
            ("<@1> hello", "hello"),
            ("hello <@!1> you", "hello you"),
            ("hello <@1>", "hello"),
            ("<@&3> and <@2>, see <#4>", "and @ann, see #general"),
            ("<@9> <#9> <@&9>", "<@9> <#9> <@&9>"),
            ("<:ok:12> <a:wave:13> <t:1700000000:R>", ":ok: :wave: <t:1700000000:R>"),
            ("a < b > c <@x> <", "a < b > c <@x> <"),
            ("if x<<@2>", "if x<@ann"),
            ("é<@2>é", "é@anné"),
        ];
        for (content, expected) in cases {
            let text = readable_text(content, |mention| match mention {
                Mention::User("1") | Mention::Role("3") => Some(String::new()),
                Mention::User("2") => Some("@ann".to_owned()),
                Mention::Channel("4") => Some("#general".to_owned()),
                Mention::Emoji(name) => Some(format!(":{name}:")),
                _ => None,
            });
            assert_eq!(text, expected, "{content}");
        }
    }
}

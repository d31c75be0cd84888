//! The entries of `allow_authors`. A login and the id of a user of a chat can be the same text, and everybody can choose
//! a login. Therefore users of a chat have the name of their platform before their id.

use super::Author;
use crate::chat_platform::ChatPlatform;

/// Entry of `allow_authors`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllowedAuthor<'a> {
    /// An account, for example of GitHub, or the name that a source of tasks states.
    Login(&'a str),
    /// A user of a chat.
    ChatUser(ChatPlatform, &'a str),
}

impl<'a> AllowedAuthor<'a> {
    /// Reads an entry: `slack:ID`, `discord:ID`, or a login.
    pub fn of(entry: &'a str) -> Self {
        let of_platform = |(platform, id): (&str, &'a str)| Some(Self::ChatUser(platform.parse().ok()?, id));
        entry.split_once(':').and_then(of_platform).unwrap_or(Self::Login(entry))
    }

    /// Checks whether the entry names this author. Case is ignored only in logins, and only for ASCII letters.
    pub fn is(self, author: &Author) -> bool {
        let Some(login) = author.login.as_deref() else { return false };
        match self {
            Self::Login(known) => author.platform.is_none() && known.eq_ignore_ascii_case(login),
            Self::ChatUser(platform, known) => author.platform == Some(platform) && known == login,
        }
    }
}

impl ChatPlatform {
    /// Checks whether a text has the form of the id of a user or bot, for example `U012AB3CD` on Slack.
    pub fn may_be_user_id(self, text: &str) -> bool {
        match self {
            Self::Slack => {
                text.len() >= 8
                    && text.starts_with(['U', 'W', 'B'])
                    && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit())
                    && text.bytes().any(|byte| byte.is_ascii_digit())
            }
            Self::Discord => text.len() >= 15 && text.bytes().all(|byte| byte.is_ascii_digit()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_users_are_recognized_by_their_form() {
        for (platform, text, expected) in [
            (ChatPlatform::Slack, "U012AB3CD", true),
            (ChatPlatform::Slack, "W012AB3CDE", true),
            (ChatPlatform::Slack, "B0123456789", true),
            (ChatPlatform::Slack, "u012ab3cd", false),
            (ChatPlatform::Slack, "UNICORNS", false),
            (ChatPlatform::Slack, "U2", false),
            (ChatPlatform::Slack, "123456789012345678", false),
            (ChatPlatform::Discord, "123456789012345678", true),
            (ChatPlatform::Discord, "2026", false),
            (ChatPlatform::Discord, "U012AB3CD", false),
        ] {
            assert_eq!(platform.may_be_user_id(text), expected, "{platform} {text}");
        }
    }
}

//! Checks the form of the ids in `chat`: an id of another form never matches anybody.

use std::collections::HashSet;

use crate::chat::ChatPlatform;
use crate::config::node::Node;
use crate::config::problem::{Problem, Problems, Severity};

use super::Written;

/// What an id names. The text is used in messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IdKind {
    User,
    /// A user, or a role on Discord.
    Operator,
    Bot,
    Role,
    Channel,
    Guild,
}

impl IdKind {
    const fn in_words(self) -> &'static str {
        match self {
            Self::User => "a user",
            Self::Operator => "a user or a role",
            Self::Bot => "a bot",
            Self::Role => "a role",
            Self::Channel => "a channel",
            Self::Guild => "a server",
        }
    }

    /// Returns the letters with which an id on Slack begins.
    const fn slack_letters(self) -> &'static str {
        match self {
            Self::User | Self::Operator => "UW",
            Self::Bot => "BUW",
            Self::Channel => "CDG",
            Self::Role | Self::Guild => "",
        }
    }

    fn matches(self, platform: ChatPlatform, id: &str) -> bool {
        match platform {
            ChatPlatform::Discord => !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit()),
            ChatPlatform::Slack => {
                let is_code = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit();
                id.len() > 1
                    && id.starts_with(|first| self.slack_letters().contains(first))
                    && id.bytes().all(is_code)
            }
        }
    }

    fn help(self, platform: ChatPlatform) -> String {
        match (platform, self) {
            (ChatPlatform::Discord, _) => {
                "an id on Discord is a number; in Developer Mode, Copy ID in the menu shows it".to_owned()
            }
            (ChatPlatform::Slack, Self::Channel) => {
                "the id is at the end of the details of the channel, for example C012AB3CD".to_owned()
            }
            (ChatPlatform::Slack, _) => {
                "the menu of the profile has Copy member ID; an id is, for example, U012AB3CD".to_owned()
            }
        }
    }
}

/// Checks all ids of a platform, and that no guild is listed twice. herdctl accepts such ids, so in its fleets they are
/// only warnings.
pub(super) fn check(problems: &mut Problems, written: &Written<'_>) {
    for (kind, id, key) in ids_of(written) {
        let Some(text) = id.text() else { continue };
        // A variable that has no value is another error.
        if kind.matches(written.platform, text) || text.contains('$') {
            continue;
        }
        let (platform, what) = (written.platform, kind.in_words());
        let message = format!("`{text}` is not the id of {what} on {platform}");
        add(problems, written, Problem::error(id.at, message).key(key).help(kind.help(platform)));
    }
    let mut seen = HashSet::new();
    for (id, key) in guilds_of(written) {
        if let Some(text) = id.text().filter(|text| !seen.insert(*text)) {
            let message = format!("the server {text} is listed twice");
            let help = "list all of its channels in one entry".to_owned();
            add(problems, written, Problem::error(id.at, message).key(key).help(help));
        }
    }
}

fn add(problems: &mut Problems, written: &Written<'_>, problem: Problem) {
    let severity = if written.draft.herdctl { Severity::Warning } else { Severity::Error };
    problems.add(Problem { severity, ..problem });
}

/// Returns all ids with their paths.
fn ids_of<'a>(written: &Written<'a>) -> Vec<(IdKind, &'a Node, String)> {
    let list = |owner: Option<&'a Node>, kind: IdKind, path: &str| {
        let ids = owner.map(Node::list).unwrap_or_default().iter().enumerate();
        ids.map(|(number, id)| (kind, id, written.key(&format!("{path}[{number}]")))).collect::<Vec<_>>()
    };
    let lists = [
        ("users", IdKind::User),
        ("operators", IdKind::Operator),
        ("bots", IdKind::Bot),
        ("roles", IdKind::Role),
    ];
    let mut ids: Vec<_> =
        lists.into_iter().flat_map(|(key, kind)| list(written.node.get(key), kind, key)).collect();
    for key in ["allowlist", "blocklist"] {
        if let Some((_, node, _)) = written.inner("dm", key) {
            ids.extend(list(Some(node), IdKind::User, &format!("dm.{key}")));
        }
    }
    ids.extend(written.channels().into_iter().map(|(id, key)| (IdKind::Channel, id, key)));
    ids.extend(guilds_of(written).into_iter().map(|(id, key)| (IdKind::Guild, id, key)));
    if let Some((_, node, key)) = written.inner("command_registration", "guild_id") {
        ids.push((IdKind::Guild, node, key));
    }
    ids
}

/// Returns the ids of the listed guilds, with their paths.
fn guilds_of<'a>(written: &Written<'a>) -> Vec<(&'a Node, String)> {
    let guilds = written.node.get("guilds").map(Node::list).unwrap_or_default().iter().enumerate();
    let id = |(number, guild): (usize, &'a Node)| {
        Some((guild.get("id")?, written.key(&format!("guilds[{number}].id"))))
    };
    guilds.filter_map(id).collect()
}

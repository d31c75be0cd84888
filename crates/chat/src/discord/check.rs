//! The check of the bot's settings on Discord.

use serde::Deserialize;
use twilight_model::guild::Permissions;

use super::directory::parsed;
use super::rest::{DiscordRest, RestError};
use super::wire::DiscordId;
use crate::{ExpectedPlaces, SetupProblem};

/// Flags of an app whose message content intent is enabled: for any number of servers, and for fewer than a hundred.
const MESSAGE_CONTENT: u64 = 1 << 18 | 1 << 19;

const NEEDED: [(Permissions, &str, &str); 7] = [
    (Permissions::VIEW_CHANNEL, "View Channels", "it receives no messages"),
    (Permissions::SEND_MESSAGES, "Send Messages", "it cannot answer"),
    (Permissions::SEND_MESSAGES_IN_THREADS, "Send Messages in Threads", "it cannot answer in threads"),
    (Permissions::EMBED_LINKS, "Embed Links", "its links have no preview"),
    (Permissions::ATTACH_FILES, "Attach Files", "it cannot post files"),
    (
        Permissions::READ_MESSAGE_HISTORY,
        "Read Message History",
        "it does not see earlier messages, or those sent while it was not connected",
    ),
    (Permissions::ADD_REACTIONS, "Add Reactions", "it cannot acknowledge messages"),
];

/// Permissions without which the bot cannot be used.
const FATAL: Permissions = Permissions::VIEW_CHANNEL.union(Permissions::SEND_MESSAGES);

#[derive(Deserialize)]
struct Application {
    id: String,
    #[serde(default)]
    flags: u64,
    /// True if everybody can add the bot to a server.
    #[serde(default)]
    bot_public: bool,
}

#[derive(Deserialize)]
struct OwnGuild {
    id: String,
    name: String,
    permissions: String,
}

/// Maximum number of servers that Discord returns in one answer.
const GUILDS_PAGE: usize = 200;

/// Returns what is missing. Does not check the permissions in single channels.
pub(super) async fn check(
    rest: &DiscordRest,
    places: &ExpectedPlaces,
) -> Result<Vec<SetupProblem>, RestError> {
    parsed::<DiscordId>(rest.get("/users/@me").await?)?;
    let application: Application = parsed(rest.get("/applications/@me").await?)?;
    let guilds: Vec<OwnGuild> = parsed(rest.get("/users/@me/guilds").await?)?;
    let mut problems = Vec::new();
    if application.flags & MESSAGE_CONTENT == 0 {
        problems.push(SetupProblem {
            problem: "the message content intent is not enabled; without it Discord refuses the connection".to_owned(),
            advice: "enable \u{201c}Message Content Intent\u{201d} on the page Bot of the app in the Discord Developer Portal"
                .to_owned(),
            is_fatal: true,
        });
    }
    if application.bot_public {
        problems.push(SetupProblem {
            problem: "the app is a public bot: everybody on Discord can add it to a server of their own, and send it direct \
                      messages"
                .to_owned(),
            advice: "in the Discord Developer Portal, set \u{201c}Install Link\u{201d} to None on the page Installation, and \
                     disable \u{201c}Public Bot\u{201d} on the page Bot"
                .to_owned(),
            is_fatal: false,
        });
    }
    if guilds.is_empty() {
        problems.push(SetupProblem {
            problem: "the bot is in no server".to_owned(),
            advice: format!("open {} and choose a server", invitation(&application.id)),
            is_fatal: true,
        });
    }
    let is_in = |id: &String| guilds.len() >= GUILDS_PAGE || guilds.iter().any(|guild| guild.id == *id);
    let absent = places.guilds.iter().filter(|id| !is_in(id));
    problems.extend(absent.map(|guild| SetupProblem {
        problem: format!("the bot is not in the server {guild}: it does not answer there"),
        advice: format!("correct the id, or open {} and choose the server", invitation(&application.id)),
        is_fatal: false,
    }));
    for channel in &places.channels {
        problems.extend(channel_problem(rest, channel).await?);
    }
    for guild in guilds {
        let bits = guild.permissions.parse().unwrap_or_default();
        let has = Permissions::from_bits_truncate(bits);
        if has.contains(Permissions::ADMINISTRATOR) {
            continue;
        }
        for (permission, name, effect) in NEEDED.iter().filter(|(permission, ..)| !has.contains(*permission))
        {
            problems.push(SetupProblem {
                problem: format!(
                    "the bot lacks the permission \u{201c}{name}\u{201d} in the server {} ({}); without it {effect}",
                    guild.name, guild.id
                ),
                advice: format!(
                    "give it to a role of the bot, or open {} and choose the server again",
                    invitation(&application.id)
                ),
                is_fatal: FATAL.contains(*permission),
            });
        }
    }
    Ok(problems)
}

/// Returns why the bot does not see a channel; none if it sees the channel.
async fn channel_problem(rest: &DiscordRest, channel: &str) -> Result<Option<SetupProblem>, RestError> {
    match rest.get(format!("/channels/{channel}")).await {
        Ok(_) => Ok(None),
        Err(RestError::Refused { message, .. }) => Ok(Some(SetupProblem {
            problem: format!("the bot does not see the channel {channel} ({message}): it does not answer there"),
            advice: "correct the id, or give a role of the bot the permission \u{201c}View Channels\u{201d} in the channel"
                .to_owned(),
            is_fatal: false,
        })),
        Err(error) => Err(error),
    }
}

fn invitation(application: &str) -> String {
    let permissions = NEEDED.iter().fold(Permissions::empty(), |all, (permission, ..)| all | *permission);
    format!(
        "https://discord.com/oauth2/authorize?client_id={application}&scope=bot%20applications.commands&permissions={}",
        permissions.bits()
    )
}

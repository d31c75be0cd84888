//! Notifications in channels of Slack and Discord. A post that may have been made is looked up before it is made again.

use cowhand_chat::discord::{DiscordConnector, DiscordSettings};
use cowhand_chat::slack::{SlackConnector, SlackSettings};
use cowhand_chat::{ChatError, Connector, Post};
use cowhand_core::chat::escape::escape;
use cowhand_core::chat::{ChatPlace, ChatPlatform};
use cowhand_core::cut::cut;
use jiff::Timestamp;

use super::{SendError, Sending};
use crate::chat_bots::post_key;

/// Longest text in bytes before it is escaped, which can double its length. Discord accepts 2000 characters.
const MAX_DISCORD_BYTES: usize = 850;
/// Slack accepts 3000 characters in a section.
const MAX_SLACK_BYTES: usize = 2_000;

pub(super) async fn slack(sending: &Sending<'_>, channel: &str, token_env: &str) -> Result<(), SendError> {
    let settings = SlackSettings {
        bot_token: sending.variable(token_env)?,
        // Only a connection needs this token, and nothing connects here.
        app_token: String::new(),
        api_url: api_url(sending, ChatPlatform::Slack, token_env),
    };
    let connector = SlackConnector::new(settings).map_err(|error| refused(&error))?;
    post(sending, &connector, channel, text(sending, ChatPlatform::Slack, MAX_SLACK_BYTES)).await
}

pub(super) async fn discord(sending: &Sending<'_>, channel: &str, token_env: &str) -> Result<(), SendError> {
    let settings = DiscordSettings {
        bot_token: sending.variable(token_env)?,
        api_url: api_url(sending, ChatPlatform::Discord, token_env),
        presence: None,
        commands: Vec::new(),
        command_guild: None,
    };
    let connector = DiscordConnector::new(settings).map_err(|error| refused(&error))?;
    post(sending, &connector, channel, text(sending, ChatPlatform::Discord, MAX_DISCORD_BYTES)).await
}

/// Returns the address of the chat bot that has the same token, if the config sets one.
fn api_url(sending: &Sending<'_>, platform: ChatPlatform, token_env: &str) -> Option<String> {
    let chats = sending.loaded.roster.agents.iter().filter_map(|agent| agent.chat.as_ref()?.on(platform));
    let mut bots = chats.map(|chat| &chat.bot).filter(|bot| bot.token_env == token_env);
    bots.find_map(|bot| bot.api_url.clone())
}

async fn post(
    sending: &Sending<'_>,
    connector: &dyn Connector,
    channel: &str,
    text: String,
) -> Result<(), SendError> {
    let record = sending.record;
    // The first try needs no lookup.
    let first_tried_at = record.tried_at.filter(|_| record.tries > 1).unwrap_or_else(Timestamp::now);
    let place = ChatPlace { space: None, channel: channel.to_owned(), thread: None, is_direct: false };
    let post = Post {
        place,
        key: post_key(&["notification", &sending.fleet, &record.id.to_string()]),
        first_tried_at,
        reply_to: None,
        text,
        buttons: Vec::new(),
        files: Vec::new(),
    };
    match tokio::time::timeout(sending.target.timeout, connector.post(&post)).await {
        Ok(posted) => posted.map(drop).map_err(|error| refused(&error)),
        Err(_) => Err(SendError::new(format!("no answer within {} s", sending.target.timeout.as_secs()))),
    }
}

fn refused(error: &ChatError) -> SendError {
    let retry_after = match error {
        ChatError::RateLimited { retry_after, .. } => Some(*retry_after),
        ChatError::Revoked { .. }
        | ChatError::Refused { .. }
        | ChatError::Unavailable { .. }
        | ChatError::TooLarge { .. } => None,
    };
    SendError { retry_after, ..SendError::new(error.to_string()) }
}

/// Formats the message for a platform. Texts of others mention nobody and format nothing.
fn text(sending: &Sending<'_>, platform: ChatPlatform, max_bytes: usize) -> String {
    let strong = match platform {
        ChatPlatform::Slack => "*",
        ChatPlatform::Discord => "**",
    };
    let title = escape(&cut(&sending.headline(), 0, max_bytes / 4), platform);
    let body = cut(&sending.message.text, 0, max_bytes * 3 / 4);
    let lines = body.lines().map(|line| escape(line, platform)).chain([escape(&sending.footer(), platform)]);
    format!("{strong}{title}{strong}\n{}", lines.collect::<Vec<_>>().join("\n"))
}

//! Earlier messages of a channel.

use cowhand_core::chat::{ChatMessage, ChatPlace};
use jiff::Timestamp;

use super::directory::{Directory, conversation_of, parsed};
use super::message::chat_message;
use super::rest::{DiscordRest, RestError};
use super::wire::DiscordMessage;

/// Maximum number of messages in one answer.
const PAGE: usize = 100;
/// Beginning of the time that ids contain, in milliseconds since 1970.
const ID_EPOCH: i64 = 1_420_070_400_000;

/// Returns at most `limit` messages, the oldest first. If there are more, returns the newest ones.
pub(super) async fn history(
    rest: &DiscordRest,
    directory: &Directory,
    place: &ChatPlace,
    after: Option<Timestamp>,
    before: Option<Timestamp>,
    limit: usize,
) -> Result<Vec<ChatMessage>, RestError> {
    let bot = directory.bot(rest).await?.id;
    if let Some(guild) = &place.space {
        directory.ensure_bot_roles(rest, guild, &bot).await?;
    }
    let mut found = Vec::new();
    let mut page_end = before.map(first_id_at);
    while found.len() < limit {
        let page = page_before(rest, conversation_of(place), page_end, PAGE).await?;
        for message in &page {
            if after.is_some_and(|after| message.timestamp <= after) || found.len() == limit {
                found.reverse();
                return Ok(found);
            }
            if before.is_some_and(|before| message.timestamp >= before) {
                continue;
            }
            let roles = author_roles(rest, directory, place, message).await?;
            found.extend(chat_message(message, place.clone(), directory, &bot, roles));
        }
        match page.last() {
            Some(oldest) if page.len() == PAGE => page_end = oldest.id.parse().ok(),
            _ => break,
        }
    }
    found.reverse();
    Ok(found)
}

/// Returns the messages of a channel before an id, the newest first.
pub(super) async fn page_before(
    rest: &DiscordRest,
    channel: &str,
    before: Option<u64>,
    count: usize,
) -> Result<Vec<DiscordMessage>, RestError> {
    let before = before.map(|id| format!("&before={id}")).unwrap_or_default();
    parsed(rest.get(format!("/channels/{channel}/messages?limit={count}{before}")).await?)
}

/// Returns the roles of the author. Messages of the history do not contain them.
async fn author_roles(
    rest: &DiscordRest,
    directory: &Directory,
    place: &ChatPlace,
    message: &DiscordMessage,
) -> Result<Vec<String>, RestError> {
    match (&place.space, &message.author) {
        (Some(guild), Some(author)) if message.webhook_id.is_none() && !author.bot => {
            directory.member_roles(rest, guild, &author.id).await
        }
        _ => Ok(Vec::new()),
    }
}

/// Returns an id that is greater than the ids of all messages that were sent before `time`.
fn first_id_at(time: Timestamp) -> u64 {
    // Ids contain milliseconds. The id is of the next millisecond, and the caller leaves out messages that are too new.
    let milliseconds = time.as_millisecond().saturating_add(1).saturating_sub(ID_EPOCH);
    u64::try_from(milliseconds).unwrap_or_default() << 22
}

/// Returns the time at which the object with this id was created.
pub(super) fn time_of_id(id: &str) -> Option<Timestamp> {
    let milliseconds = i64::try_from(id.parse::<u64>().ok()? >> 22).ok()?;
    Timestamp::from_millisecond(milliseconds + ID_EPOCH).ok()
}

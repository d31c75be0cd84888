//! Messages of the bot.
//!
//! The nonce of a post makes Discord post it once: if the bot has sent a message with this nonce in the last minutes,
//! Discord returns that message. If the first try is longer ago, the connector looks for the post in the messages of
//! the channel since then. In the history, Discord does not always state the nonce. A message of the bot without a
//! nonce is the post if it has the same text, answers the same message and has files with the same names. Therefore the
//! connector can take one post for another if both are equal in these three points, and the first one was made after
//! the first try of the second one. This does not happen between the posts of one answer, because the first try of a
//! post comes after the post before it was made.

use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use serde_json::{Value, json};

use super::UNKNOWN_MESSAGE;
use super::directory::{Directory, conversation_of, parsed};
use super::history::{page_before, time_of_id};
use super::multipart::multipart;
use super::rest::{DiscordRest, RestBody, RestError, RestRequest};
use super::wire::DiscordMessage;
use crate::{Button, ButtonStyle, Post, Posted};

/// Age of the first try above which the connector does not rely on the nonce.
const NONCE_AGE: SignedDuration = SignedDuration::from_mins(1);
/// Tolerance for the comparison of times of the platform, whose answers state whole seconds.
const CLOCK_TOLERANCE: SignedDuration = SignedDuration::from_secs(1);
/// Time before the first try from which a post is looked up: the clock of the platform is known only in whole seconds,
/// and its answers take some time.
const LOOKUP_MARGIN: SignedDuration = SignedDuration::from_secs(5);
const PAGE: usize = 100;
/// Flag of a message whose links have no previews. For a preview, Discord requests the address: an agent without access
/// to the network could send data in the addresses of its links.
pub(super) const SUPPRESS_EMBEDS: u64 = 1 << 2;
/// Maximum number of buttons in a row, and of characters of a label.
const ROW_BUTTONS: usize = 5;
const LABEL_CHARACTERS: usize = 80;

/// Code of Discord for a channel or thread that was deleted.
const UNKNOWN_CHANNEL: u64 = 10003;

/// Posts a message. If its thread does not exist any more, posts the message in the channel.
pub(super) async fn post(
    rest: &DiscordRest,
    directory: &Directory,
    post: &Post,
    now: Timestamp,
) -> Result<Posted, RestError> {
    match post_there(rest, directory, post, now).await {
        Err(RestError::Refused { code: UNKNOWN_CHANNEL, .. }) if post.place.thread.is_some() => {
            post_there(rest, directory, &post.outside_thread(), now).await
        }
        done => done,
    }
}

async fn post_there(
    rest: &DiscordRest,
    directory: &Directory,
    post: &Post,
    now: Timestamp,
) -> Result<Posted, RestError> {
    // The age is negative if the clock was set back.
    let age = now.duration_since(post.first_tried_at);
    if !(SignedDuration::ZERO..=NONCE_AGE).contains(&age)
        && let Some(id) = earlier_message(rest, directory, post).await?
    {
        return Ok(Posted { id, is_repeated: true });
    }
    let path = format!("/channels/{}/messages", conversation_of(&post.place));
    let payload = payload(post);
    let body = if post.files.is_empty() {
        RestBody::Json(payload)
    } else {
        multipart(&post.key, &payload, &post.files)
    };
    let request = RestRequest { body, is_repeatable: true, ..RestRequest::new(Method::POST, path) };
    let answer = rest.send(&request).await?;
    let message: DiscordMessage = parsed(answer.body)?;
    // Both times are by the clock of the platform.
    let is_repeated = match (time_of_id(&message.id), answer.date) {
        (Some(made_at), Some(date)) => date.duration_since(made_at) > CLOCK_TOLERANCE,
        _ => false,
    };
    Ok(Posted { id: message.id, is_repeated })
}

/// Replaces the text and the buttons of a message.
pub(super) async fn edit(
    rest: &DiscordRest,
    channel: &str,
    message: &str,
    text: &str,
    buttons: &[Button],
) -> Result<(), RestError> {
    let path = format!("/channels/{channel}/messages/{message}");
    let body = json!({
        "content": text,
        "components": components(buttons),
        "flags": SUPPRESS_EMBEDS,
        "allowed_mentions": { "parse": [], "replied_user": false },
    });
    rest.send(&RestRequest::new(Method::PATCH, path).json(body)).await.map(drop)
}

fn payload(post: &Post) -> Value {
    let mut payload = json!({
        "content": post.text,
        "nonce": post.key,
        "enforce_nonce": true,
        "flags": SUPPRESS_EMBEDS,
        "allowed_mentions": { "parse": [], "replied_user": false },
    });
    if !post.buttons.is_empty() {
        payload["components"] = components(&post.buttons);
    }
    if let Some(message) = &post.reply_to {
        payload["message_reference"] = json!({ "message_id": message, "fail_if_not_exists": false });
    }
    if !post.files.is_empty() {
        let files = post.files.iter().enumerate();
        payload["attachments"] = files.map(|(id, file)| json!({ "id": id, "filename": file.name })).collect();
    }
    payload
}

fn components(buttons: &[Button]) -> Value {
    let button = |button: &Button| {
        let style = match button.style {
            ButtonStyle::Neutral => 2,
            ButtonStyle::Approve => 3,
            ButtonStyle::Deny => 4,
        };
        let label: String = button.label.chars().take(LABEL_CHARACTERS).collect();
        json!({ "type": 2, "style": style, "label": label, "custom_id": button.value })
    };
    let row = |row: &[Button]| json!({ "type": 1, "components": row.iter().map(button).collect::<Value>() });
    buttons.chunks(ROW_BUTTONS).map(row).collect()
}

/// Looks for the message of an earlier call in the messages since its first try.
async fn earlier_message(
    rest: &DiscordRest,
    directory: &Directory,
    post: &Post,
) -> Result<Option<String>, RestError> {
    let bot = directory.bot(rest).await?.id;
    let channel = conversation_of(&post.place);
    let mut before = None;
    loop {
        let page = page_before(rest, channel, before, PAGE).await?;
        // The answer has stated the time of the platform.
        let since = rest.clock.converted(post.first_tried_at);
        let since = since.checked_sub(LOOKUP_MARGIN).unwrap_or(Timestamp::MIN);
        for message in &page {
            if message.timestamp < since {
                return Ok(None);
            }
            if is_same(message, post, &bot) && answers_same(rest, channel, message, post).await? {
                return Ok(Some(message.id.clone()));
            }
        }
        match page.last() {
            Some(oldest) if page.len() == PAGE => before = oldest.id.parse().ok(),
            _ => return Ok(None),
        }
    }
}

fn is_same(message: &DiscordMessage, post: &Post, bot: &str) -> bool {
    if message.author.as_ref().is_none_or(|author| author.id != bot) {
        return false;
    }
    if let Some(nonce) = message.nonce.as_str() {
        return nonce == post.key;
    }
    let files = message.attachments.iter().map(|file| file.filename.as_str());
    // Discord removes spaces around the text.
    message.content.trim() == post.text.trim() && files.eq(post.files.iter().map(|file| file.name.as_str()))
}

/// Returns whether a message with the same text and files answers the message that the post answers. Discord posts an
/// answer to a deleted message without a reference.
async fn answers_same(
    rest: &DiscordRest,
    channel: &str,
    message: &DiscordMessage,
    post: &Post,
) -> Result<bool, RestError> {
    let reply_to = message.message_reference.as_ref().and_then(|reference| reference.message_id.as_ref());
    match (reply_to, &post.reply_to) {
        (None, Some(answered)) if message.nonce.as_str().is_none() => {
            match rest.get(format!("/channels/{channel}/messages/{answered}")).await {
                Ok(_) => Ok(false),
                Err(RestError::Refused { code: UNKNOWN_MESSAGE, .. }) => Ok(true),
                Err(error) => Err(error),
            }
        }
        (reply_to, expected) => Ok(message.nonce.as_str().is_some() || reply_to == expected.as_ref()),
    }
}

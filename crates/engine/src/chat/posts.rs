//! Posts of the daemon itself: replies to commands, refusals and notes.

use cowhand_chat::{Button, ChatError, Post, Posted};
use cowhand_core::chat::ChatPlace;
use cowhand_core::chat::markdown::post_limit;
use cowhand_core::chat::split::split;
use jiff::Timestamp;
use tracing::warn;

use super::bot::Bot;
use super::context::ChatContext;
pub(super) use crate::chat_bots::{post_key, wait_after};

/// Maximum number of tries of a reply that is tried again later.
const MAX_POST_TRIES: u32 = 5;
/// Maximum number of tries of a reply that is not tried again later. They last for about two minutes.
const MAX_REPLY_TRIES: u32 = 8;

/// A reply that is posted once, even if it is tried several times.
#[derive(Debug)]
pub(super) struct ChatReply<'a> {
    pub(super) place: ChatPlace,
    /// Id of the message to which this is a reply.
    pub(super) reply_to: Option<String>,
    /// Parts that together identify the reply.
    pub(super) key: &'a [&'a str],
    /// Time before which the reply was not posted.
    pub(super) first_tried_at: Timestamp,
    /// Text in the notation of the platform.
    pub(super) text: String,
    /// Buttons of the last post.
    pub(super) buttons: Vec<Button>,
}

impl ChatContext {
    /// Posts a reply. Returns the id of the last post. An error is only logged, because nothing depends on the reply.
    pub(super) async fn reply(&self, bot: &Bot, reply: ChatReply<'_>) -> Option<String> {
        self.post_reply(bot, reply, MAX_REPLY_TRIES).await.ok().flatten()
    }

    /// Posts a reply, in several posts if it is long. Returns the id of the last post. After an error, it can be called
    /// again with the same reply.
    pub(super) async fn try_reply(
        &self,
        bot: &Bot,
        reply: ChatReply<'_>,
    ) -> Result<Option<String>, ChatError> {
        self.post_reply(bot, reply, MAX_POST_TRIES).await
    }

    async fn post_reply(
        &self,
        bot: &Bot,
        reply: ChatReply<'_>,
        max_tries: u32,
    ) -> Result<Option<String>, ChatError> {
        let text = self.public_text(&reply.text);
        let texts = split(&text, post_limit(bot.platform));
        let last = texts.len().saturating_sub(1);
        let mut posted = None;
        for (number, text) in texts.into_iter().enumerate() {
            let number_text = number.to_string();
            let parts: Vec<&str> = reply.key.iter().copied().chain([number_text.as_str()]).collect();
            let post = Post {
                place: reply.place.clone(),
                key: post_key(&parts),
                first_tried_at: reply.first_tried_at,
                reply_to: reply.reply_to.clone().filter(|_| number == 0),
                text,
                buttons: if number == last { reply.buttons.clone() } else { Vec::new() },
                files: Vec::new(),
            };
            match post_with_retries(bot, &post, max_tries).await {
                Ok(done) => posted = Some(done.id),
                Err(error) => {
                    let channel = &reply.place.channel;
                    warn!(bot = bot.key, channel, "cannot post a reply: {error}");
                    return Err(error);
                }
            }
        }
        Ok(posted)
    }
}

async fn post_with_retries(bot: &Bot, post: &Post, max_tries: u32) -> Result<Posted, ChatError> {
    let mut failures = 0;
    loop {
        match bot.connector.post(post).await {
            Err(error) if error.is_temporary() && failures + 1 < max_tries => {
                failures += 1;
                tokio::time::sleep(wait_after(&error, failures)).await;
            }
            done => return done,
        }
    }
}

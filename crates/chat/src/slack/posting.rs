//! Posts, edits and reactions.

use std::sync::PoisonError;
use std::time::Duration;

use cowhand_core::backoff::Backoff;
use cowhand_core::chat::ChatPlace;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::SlackConnector;
use super::api::{CallError, CallRepeat, MethodParams};
use super::emoji::emoji_name;
use super::post_error::PostError;
use super::sections::blocks;
use super::timestamp::{split_id, ts_of};
use crate::{Button, ChatError, Post, Posted};
use cowhand_system::wait;

/// Type of the metadata that contains the key of a post.
const POST_EVENT_TYPE: &str = "cowhand_post";
/// Age of the first try above which a post is looked up before it is posted.
const FIRST_TRY_AGE: SignedDuration = SignedDuration::from_secs(2);
/// Time before the first try from which a post is looked up, because clocks can differ and can be set.
const LOOKUP_MARGIN: SignedDuration = SignedDuration::from_mins(10);
const MAX_POST_TRIES: u32 = 4;
const POST_WAITS: Backoff = Backoff::doubling(SignedDuration::from_millis(500), SignedDuration::from_secs(5));
/// Number of messages on a page of the lookup.
const LOOKUP_PAGE: usize = 200;
const MAX_LOOKUP_PAGES: usize = 20;

/// A message that is posted, with the ids of the files that belong to it.
pub(super) struct PostedText {
    pub(super) ts: String,
    pub(super) files: Vec<String>,
    pub(super) is_repeated: bool,
}

impl SlackConnector {
    pub(super) async fn post_once(&self, post: &Post) -> Result<Posted, ChatError> {
        let age = Timestamp::now().duration_since(post.first_tried_at);
        // The age is negative if the clock was set back.
        let is_first = (SignedDuration::ZERO..=FIRST_TRY_AGE).contains(&age);
        let is_retry = !is_first || post.first_tried_at < self.created_at;
        let must_look = is_retry || self.is_uncertain(&post.key);
        let result = self.post_in_turn(post, must_look).await;
        let mut uncertain = self.uncertain_posts.lock().unwrap_or_else(PoisonError::into_inner);
        let earlier = uncertain.get(&post.key).copied().unwrap_or_default();
        let refusals = earlier + u32::from(matches!(result, Err(PostError::UnknownCode(_))));
        let result = result.map_err(|error| error.after(refusals));
        if matches!(result, Err(ChatError::Unavailable { .. } | ChatError::RateLimited { .. })) {
            uncertain.insert(post.key.clone(), refusals);
        } else {
            uncertain.remove(&post.key);
        }
        result
    }

    /// Posts in the turn of the channel. If the thread does not exist any more, posts in its channel.
    async fn post_in_turn(&self, post: &Post, must_look: bool) -> Result<Posted, PostError> {
        let mut files = None;
        match self.post_there(post, must_look, &mut files).await {
            Err(PostError::ThreadGone(_)) if post.place.thread.is_some() => {
                self.post_there(&post.outside_thread(), must_look, &mut files).await
            }
            done => done,
        }
    }

    /// Posts at the place of the post. Files are uploaded before the turn of the channel, because a slow upload would hold
    /// up its other posts. `files` are the ids of the files that are uploaded.
    async fn post_there(
        &self,
        post: &Post,
        must_look: bool,
        files: &mut Option<Vec<String>>,
    ) -> Result<Posted, PostError> {
        if !post.files.is_empty() {
            if must_look && let Some(found) = self.find_post(post).await? {
                let _turn = self.pace.turn(&post.place.channel).await;
                return self.with_files(post, found).await;
            }
            if files.is_none() {
                *files = Some(self.upload_files(post).await?);
            }
        }
        let _turn = self.pace.turn(&post.place.channel).await;
        let text = self.post_text(post, must_look && files.is_none(), files.clone()).await?;
        self.with_files(post, text).await
    }

    fn is_uncertain(&self, key: &str) -> bool {
        self.uncertain_posts.lock().unwrap_or_else(PoisonError::into_inner).contains_key(key)
    }

    async fn with_files(&self, post: &Post, text: PostedText) -> Result<Posted, PostError> {
        if !post.files.is_empty() {
            self.share_files(post, &text).await?;
        }
        let id = format!("{}:{}", post.place.channel, text.ts);
        Ok(Posted { id, is_repeated: text.is_repeated })
    }

    /// Posts the text. After an error with an unknown result, looks for the post before it tries again.
    /// `files` are the ids of uploaded files; none if the post has no files.
    async fn post_text(
        &self,
        post: &Post,
        mut must_look: bool,
        mut files: Option<Vec<String>>,
    ) -> Result<PostedText, PostError> {
        let mut failures = 0;
        loop {
            if must_look && let Some(found) = self.find_post(post).await? {
                return Ok(found);
            }
            let ids = files.take().unwrap_or_default();
            match self
                .api
                .call("chat.postMessage", &message_params(post, &ids), CallRepeat::IfNotExecuted)
                .await
            {
                Ok(answer) => {
                    let ts = answer["ts"].as_str().unwrap_or_default().to_owned();
                    return Ok(PostedText { ts, files: ids, is_repeated: false });
                }
                Err(CallError::Unknown { .. }) if failures + 1 < MAX_POST_TRIES => {
                    failures += 1;
                    (must_look, files) = (true, Some(ids));
                    sleep(wait_after(failures)).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Looks for the message with the key of the post among the bot's messages since the first try.
    async fn find_post(&self, post: &Post) -> Result<Option<PostedText>, PostError> {
        let identity = self.identity().await?;
        let oldest = self.api.clock.converted(post.first_tried_at);
        let oldest = oldest.checked_sub(LOOKUP_MARGIN).unwrap_or(Timestamp::MIN);
        let mut cursor = None;
        for _ in 0..MAX_LOOKUP_PAGES {
            let params = [("oldest", ts_of(oldest)), ("include_all_metadata", "true".to_owned())];
            let page = match self.message_page(&post.place, params.to_vec(), LOOKUP_PAGE, cursor).await {
                Ok(page) => page,
                // A bot may be allowed to answer where it may not read.
                Err(error) if matches!(error.code(), Some("missing_scope" | "not_in_channel")) => {
                    tracing::warn!(
                        "an earlier post cannot be looked up on Slack: {}",
                        ChatError::from(error)
                    );
                    return Ok(None);
                }
                Err(error) => return Err(error.into()),
            };
            let is_post = |message: &&Value| {
                let metadata = &message["metadata"];
                metadata["event_type"] == POST_EVENT_TYPE
                    && metadata["event_payload"]["key"] == post.key.as_str()
                    && identity.wrote(message)
            };
            if let Some(message) = page.messages.iter().find(is_post) {
                let files = message["metadata"]["event_payload"]["files"].as_array();
                let files = files.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
                let ts = message["ts"].as_str().unwrap_or_default().to_owned();
                return Ok(Some(PostedText { ts, files: files.collect(), is_repeated: true }));
            }
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        Ok(None)
    }

    pub(super) async fn update(
        &self,
        message: &str,
        text: &str,
        buttons: &[Button],
    ) -> Result<(), ChatError> {
        let (channel, ts) = split_id(message)?;
        let mut params = text_params(channel, text);
        params.push(("ts", ts.to_owned()));
        // Without blocks, Slack keeps those that the message has.
        params.push(("blocks", blocks(text, buttons).to_string()));
        self.api.call("chat.update", &params, CallRepeat::Always).await?;
        Ok(())
    }

    /// Records other files in the metadata of a post.
    pub(super) async fn record_files(
        &self,
        post: &Post,
        ts: &str,
        files: &[String],
    ) -> Result<(), PostError> {
        let mut params = message_params(post, files);
        params.push(("ts", ts.to_owned()));
        self.api.call("chat.update", &params, CallRepeat::Always).await?;
        Ok(())
    }

    pub(super) async fn set_reaction(
        &self,
        message: &str,
        emoji: &str,
        is_added: bool,
    ) -> Result<(), ChatError> {
        let (channel, ts) = split_id(message)?;
        let params = vec![
            ("channel", channel.to_owned()),
            ("timestamp", ts.to_owned()),
            ("name", emoji_name(emoji).to_owned()),
        ];
        let method = if is_added { "reactions.add" } else { "reactions.remove" };
        match self.api.call(method, &params, CallRepeat::Always).await {
            Err(error) if !matches!(error.code(), Some("already_reacted" | "no_reaction")) => {
                Err(error.into())
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

fn text_params(channel: &str, text: &str) -> MethodParams {
    let fixed = [("parse", "none"), ("link_names", "false"), ("mrkdwn", "true")];
    let mut params: MethodParams = fixed.map(|(name, value)| (name, value.to_owned())).to_vec();
    params.extend([("channel", channel.to_owned()), ("text", text.to_owned())]);
    params
}

fn message_params(post: &Post, files: &[String]) -> MethodParams {
    let names = || post.files.iter().map(|file| file.name.as_str()).collect::<Vec<_>>().join(", ");
    let text = if post.text.trim().is_empty() { names() } else { post.text.clone() };
    let mut payload = json!({ "key": post.key });
    if !files.is_empty() {
        payload["files"] = json!(files);
    }
    let metadata = json!({ "event_type": POST_EVENT_TYPE, "event_payload": payload });
    let mut params = text_params(&post.place.channel, &text);
    params.extend([
        ("metadata", metadata.to_string()),
        ("unfurl_links", "false".to_owned()),
        ("unfurl_media", "false".to_owned()),
    ]);
    params.extend(thread_param(&post.place));
    if !post.buttons.is_empty() {
        params.push(("blocks", blocks(&text, &post.buttons).to_string()));
    }
    params
}

pub(super) fn thread_param(place: &ChatPlace) -> Option<(&'static str, String)> {
    place.thread.clone().map(|thread| ("thread_ts", thread))
}

/// Returns the wait before another try.
pub(super) fn wait_after(failures: u32) -> Duration {
    wait::length("chat_retry", POST_WAITS.wait_after(failures))
}

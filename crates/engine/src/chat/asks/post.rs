//! Posts the open asks of a job, between the posts of its output.

use std::time::Duration;

use cowhand_chat::{OutgoingFile, Post};
use cowhand_core::ask::{Ask, AskState};
use cowhand_core::chat::posting::PostedAsk;
use cowhand_core::chat::texts::ask_posts;
use cowhand_core::id::JobId;
use tokio::time::Instant;

use super::super::answer::Posting;
use super::super::posts::post_key;
use super::buttons_of;
use crate::fleet::ask::redacted_subject;
use cowhand_store::{ChatAsk, StoreError};
use cowhand_system::fault;

/// Time after which an ask is posted even if the agent continues to write.
const MAX_WAIT_FOR_QUIET: Duration = Duration::from_secs(3);

/// Decides when the asks of a job are posted: after the output that the agent wrote before it asked. Output arrives
/// slightly later than an ask. Therefore an ask waits until no output has arrived for one tick.
#[derive(Debug, Default)]
pub(in crate::chat) struct AskWatch {
    /// Number of ticks since the last line of output.
    quiet_ticks: u32,
    /// Last change of the store that was checked.
    seen: Option<i64>,
    /// Time at which an ask that is not posted was first found.
    unposted_since: Option<Instant>,
    is_waiting: bool,
}

impl AskWatch {
    /// Returns whether the agent waits for an answer.
    pub(in crate::chat) const fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    pub(in crate::chat) const fn output_was_read(&mut self) {
        self.quiet_ticks = 0;
    }

    /// Posts new asks if the output before them is posted, or if they have waited too long.
    pub(in crate::chat) async fn tick(
        &mut self,
        posting: &mut Posting<'_>,
        job: &JobId,
    ) -> Result<(), StoreError> {
        let is_quiet = self.quiet_ticks > 0;
        self.quiet_ticks += 1;
        let seen = posting.context.store().committed();
        if self.seen == Some(seen) && self.unposted_since.is_none() {
            return Ok(());
        }
        self.seen = Some(seen);
        let asks = posting.context.store().asks_of(job.clone()).await?;
        let now = posting.context.now();
        self.is_waiting = asks.iter().any(|ask| ask.is_open(now));
        if posting.unposted(asks).await?.is_empty() {
            self.unposted_since = None;
            return Ok(());
        }
        let since = *self.unposted_since.get_or_insert_with(Instant::now);
        if is_quiet || since.elapsed() >= MAX_WAIT_FOR_QUIET {
            posting.post_asks(job).await?;
            self.unposted_since = None;
        }
        Ok(())
    }
}

impl Posting<'_> {
    /// Posts the open asks of a job that are not posted yet, and the missing posts of asks whose posting was
    /// interrupted.
    pub(in crate::chat) async fn post_asks(&mut self, job: &JobId) -> Result<(), StoreError> {
        let asks = self.context.store().asks_of(job.clone()).await?;
        for (ask, posted) in self.unposted(asks).await? {
            self.post_ask(ask, posted).await?;
        }
        Ok(())
    }

    /// Returns the asks that have to be posted, each with the posts that have already been made.
    async fn unposted(&self, asks: Vec<Ask>) -> Result<Vec<(Ask, PostedAsk)>, StoreError> {
        let Some(first) = asks.first() else { return Ok(Vec::new()) };
        let known = self.context.store().chat_asks_of(first.job.clone()).await?;
        let now = self.context.now();
        let unposted = asks.into_iter().filter_map(|ask| {
            let posted = match known.iter().find(|known| known.id == ask.id) {
                Some(ChatAsk { posted, is_closed: false, .. }) if !posted.is_complete => posted.clone(),
                None if ask.is_open(now) => self.new_posted_ask(),
                Some(_) | None => return None,
            };
            Some((ask, posted))
        });
        Ok(unposted.collect())
    }

    fn new_posted_ask(&self) -> PostedAsk {
        PostedAsk {
            agent: self.answer.agent.clone(),
            platform: self.bot.platform,
            place: self.answer.origin.place.clone(),
            is_answerable: !self.chat.access.operators.is_empty(),
            messages: Vec::new(),
            is_complete: false,
            tried_at: None,
        }
    }

    /// Posts an ask as it was when it was open, even if it is closed now. Its last post is edited afterwards.
    async fn post_ask(&mut self, ask: Ask, mut posted: PostedAsk) -> Result<(), StoreError> {
        let store = self.context.store();
        let redactor = self.context.fleet.redactor();
        let what = redacted_subject(ask.what, &redactor);
        let ask = Ask { what, state: AskState::Open, ..ask };
        let posts = ask_posts(&ask, posted.is_answerable, self.bot.platform);
        let count = posts.len();
        for (number, rendered) in posts.into_iter().enumerate().skip(posted.messages.len()) {
            let now = self.context.now();
            let first_tried_at = *posted.tried_at.get_or_insert(now);
            store.save_chat_ask(ask.id.clone(), posted.clone()).await?;
            fault::point("chat_ask_tried");
            let is_last = number + 1 == count;
            let file =
                rendered.file.map(|file| OutgoingFile { name: file.name, content: file.content.into() });
            let post = Post {
                place: posted.place.clone(),
                key: post_key(&["ask", &ask.id.to_string(), &number.to_string()]),
                first_tried_at,
                reply_to: Some(self.answer.origin.message.clone()).filter(|_| number == 0),
                text: rendered.text,
                buttons: if is_last && posted.is_answerable { buttons_of(&ask) } else { Vec::new() },
                files: file.into_iter().collect(),
            };
            let Ok(message) = self.post_until_done(&post).await else {
                // The platform refuses the post, and would refuse it again. People can still answer the ask outside the
                // chat.
                return store.close_chat_ask(ask.id.clone()).await;
            };
            fault::point("chat_ask_posted");
            posted.count_post(message.id);
            posted.is_complete = is_last;
            store.save_chat_ask(ask.id.clone(), posted.clone()).await?;
        }
        Ok(())
    }
}

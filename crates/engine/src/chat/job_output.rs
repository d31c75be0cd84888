//! Posts the output of a job that runs, or ran, on this node: one post after the other, each counted in the store.

use std::time::Duration;

use cowhand_chat::{Button, ButtonStyle, ChatError, OutgoingFile, Post, Posted};
use cowhand_core::chat::render::{OutputRenderer, RenderedPost};
use cowhand_core::chat::texts;
use cowhand_core::id::JobId;
use cowhand_core::job::{Job, JobStatus};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::{debug, warn};

use super::answer::{AnswerStep, Posting};
use super::asks::post::AskWatch;
use super::buttons::ButtonValue;
use super::posts::{post_key, wait_after};
use super::sent_files::SentFiles;
use crate::fleet::{FleetError, OutputStream};
use cowhand_store::StoreError;
use cowhand_system::fault;

/// Time between two checks whether the progress message has to change.
const PROGRESS_TICK: Duration = Duration::from_millis(500);
/// Shortest time between two edits of the progress message.
const PROGRESS_EVERY: Duration = Duration::from_millis(1_500);
/// Time after which a job gets a progress message.
const PROGRESS_AFTER: Duration = Duration::from_secs(2);
/// Time between two requests that show that the bot is typing. Discord shows it for about ten seconds.
const TYPING_EVERY: Duration = Duration::from_secs(8);
/// Wait before the next try of a post that the platform refused because of the token.
const REVOKED_WAIT: Duration = Duration::from_secs(30);

/// The output of one job, with the part that has been posted.
pub(super) struct OutputPosts<'a, 'b> {
    pub(super) posting: &'a mut Posting<'b>,
    pub(super) job: JobId,
    /// Files that the agent has sent.
    pub(super) sent_files: SentFiles,
    renderer: OutputRenderer,
    /// Number of posts that were rendered from the lines so far.
    rendered: u32,
    began_at: Instant,
    edited_at: Option<Instant>,
    /// Text of the progress message; empty before the first post or edit.
    shown: String,
    typed_at: Option<Instant>,
    asks: AskWatch,
}

impl<'a, 'b> OutputPosts<'a, 'b> {
    /// Begins to post the output of a job, or continues after the last post of this node.
    pub(super) async fn begin(posting: &'a mut Posting<'b>, job: &JobId) -> Result<Self, StoreError> {
        let node = posting.context.node();
        let answer = &mut posting.answer;
        if answer.progress.job.as_ref() != Some(job) || answer.node.as_ref() != Some(&node) {
            answer.progress.begin_job(job.clone());
            answer.node = Some(node);
            posting.save().await?;
        }
        posting.read_waiting_note().await?;
        let renderer = OutputRenderer::new(posting.bot.platform, &posting.chat.output);
        let (edited_at, typed_at) = (None, None);
        let (began_at, shown, asks) = (Instant::now(), String::new(), AskWatch::default());
        Ok(Self {
            posting,
            job: job.clone(),
            sent_files: SentFiles::default(),
            renderer,
            rendered: 0,
            began_at,
            edited_at,
            shown,
            typed_at,
            asks,
        })
    }

    /// Posts the output until the job has ended.
    pub(super) async fn post(mut self) -> Result<AnswerStep, StoreError> {
        let fleet = &self.posting.context.fleet;
        let output = match fleet.output(&self.job).await {
            Ok(output) => output,
            Err(error) => return Ok(self.give_up(&error)),
        };
        if let Err(error) = self.follow(output).await {
            return match error {
                FleetError::Store(error) => Err(error),
                error => Ok(self.give_up(&error)),
            };
        }
        let store = self.posting.context.store();
        let Some(history) = store.history(self.job.clone()).await? else { return Ok(AnswerStep::Done) };
        let is_here = history.attempts.last().is_some_and(|last| last.node == self.posting.context.node());
        let is_live = matches!(history.job.status(), JobStatus::Pending | JobStatus::Running);
        if is_live || !is_here || self.posting.has_no_chat {
            return Ok(AnswerStep::Later);
        }
        self.posting.post_asks(&self.job).await?;
        self.post_end(&history.job).await?;
        Ok(if self.posting.has_no_chat { AnswerStep::Later } else { AnswerStep::Done })
    }

    fn give_up(&self, error: &FleetError) -> AnswerStep {
        warn!(job = %self.job, "cannot read the output of a job for its chat; it is tried again: {error}");
        AnswerStep::Later
    }

    async fn follow(&mut self, mut output: OutputStream) -> Result<(), FleetError> {
        let (mut tick, mut line) = (interval(PROGRESS_TICK), 0);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                message = output.next() => match message? {
                    Some(message) => {
                        line = message.line;
                        self.post_files_before(line).await?;
                        self.asks.output_was_read();
                        for post in self.renderer.push(&message.message) {
                            self.post_once(post).await?;
                        }
                    }
                    None => return Ok(()),
                },
                () = std::future::ready(()), if self.posting.has_no_chat => return Ok(()),
                _ = tick.tick() => {
                    self.post_files_before(line + 1).await?;
                    self.asks.tick(self.posting, &self.job).await?;
                    self.show_progress().await?;
                    self.show_typing().await;
                }
            }
        }
    }

    /// Posts the files and texts that belong to the end of the job, and shows the end in the progress message.
    async fn post_end(&mut self, job: &Job) -> Result<(), StoreError> {
        self.post_files_before(u64::MAX).await?;
        let end = self.posting.answer_end(job).await?;
        for post in self.renderer.end(&end) {
            self.post_once(post).await?;
        }
        let Some(message) = self.progress_message() else { return Ok(()) };
        let text = if self.posting.chat.output.progress_indicator {
            self.renderer.progress()
        } else {
            texts::started(&self.posting.answer.agent, self.posting.bot.platform)
        };
        self.edit(&message, text, &[]).await;
        Ok(())
    }

    /// Makes a post of the output, unless it was made before.
    async fn post_once(&mut self, rendered: RenderedPost) -> Result<(), StoreError> {
        if self.posting.has_no_chat {
            return Ok(());
        }
        let index = self.rendered;
        self.rendered += 1;
        let posting = &mut *self.posting;
        let progress = &mut posting.answer.progress;
        if index < progress.posted {
            return Ok(());
        }
        let number = progress.next_post();
        let now = posting.context.now();
        let first_tried_at = *progress.tried_at.get_or_insert(now);
        posting.save().await?;
        fault::point("chat_post_tried");
        let redactor = posting.context.fleet.redactor();
        let file = |file: cowhand_core::chat::render::RenderedFile| OutgoingFile {
            name: file.name,
            content: redactor.redact(&file.content).into_owned().into_bytes(),
        };
        let origin = &posting.answer.origin;
        let post = Post {
            place: origin.place.clone(),
            key: posting.post_key(&number.to_string()),
            first_tried_at,
            reply_to: Some(origin.message.clone()).filter(|_| number == 0),
            text: redactor.redact(&rendered.text).into_owned(),
            buttons: Vec::new(),
            files: rendered.file.map(file).into_iter().collect(),
        };
        let posted = posting.post_until_done(&post).await;
        if posting.has_no_chat {
            return Ok(());
        }
        if let Err(refusal) = posted {
            posting.answer.progress.not_posted = Some(refusal.to_string());
        }
        fault::point("chat_posted");
        posting.answer.progress.count_post();
        posting.save().await?;
        fault::point("chat_post_counted");
        Ok(())
    }

    /// Returns the id of the message that shows the progress: the progress message, or else the waiting note.
    fn progress_message(&self) -> Option<String> {
        let answer = &self.posting.answer;
        let note = || answer.waiting_note.clone().filter(|note| !note.is_empty());
        answer.progress.progress_message.clone().or_else(note)
    }

    /// Posts or edits the progress message, if it has something new to show.
    async fn show_progress(&mut self) -> Result<(), StoreError> {
        let is_recent = |at: Instant| at.elapsed() < PROGRESS_EVERY;
        if self.edited_at.is_some_and(is_recent) {
            return Ok(());
        }
        let text = if self.posting.chat.output.progress_indicator {
            self.renderer.progress()
        } else {
            texts::started(&self.posting.answer.agent, self.posting.bot.platform)
        };
        if text == self.shown {
            return Ok(());
        }
        let buttons = [Button {
            label: "Stop".to_owned(),
            value: ButtonValue::Stop(self.job.clone()).to_string(),
            style: ButtonStyle::Neutral,
        }];
        if let Some(message) = self.progress_message() {
            self.edit(&message, text, &buttons).await;
            return Ok(());
        }
        let is_due = self.posting.chat.output.progress_indicator && self.began_at.elapsed() >= PROGRESS_AFTER;
        if !is_due {
            return Ok(());
        }
        self.edited_at = Some(Instant::now());
        let posting = &mut *self.posting;
        let post = Post {
            place: posting.answer.origin.place.clone(),
            key: posting.post_key("progress"),
            first_tried_at: posting.answer.created_at,
            reply_to: Some(posting.answer.origin.message.clone()),
            text: posting.context.fleet.redactor().redact(&text).into_owned(),
            buttons: buttons.to_vec(),
            files: Vec::new(),
        };
        match posting.bot.connector.post(&post).await {
            Ok(posted) => {
                posting.answer.progress.progress_message = Some(posted.id);
                posting.save().await?;
                self.shown = text;
            }
            Err(error) => debug!(bot = posting.bot.key, "cannot post a progress message: {error}"),
        }
        Ok(())
    }

    async fn edit(&mut self, message: &str, text: String, buttons: &[Button]) {
        self.edited_at = Some(Instant::now());
        let posting = &*self.posting;
        let redacted = posting.context.fleet.redactor().redact(&text).into_owned();
        let place = &posting.answer.origin.place;
        match posting.bot.connector.edit(place, message, &redacted, buttons).await {
            Ok(()) => self.shown = text,
            Err(error) => debug!(bot = posting.bot.key, "cannot edit a progress message: {error}"),
        }
    }

    async fn show_typing(&mut self) {
        let is_recent = |at: Instant| at.elapsed() < TYPING_EVERY;
        let is_shown = self.posting.chat.output.typing_indicator && !self.asks.is_waiting();
        if !is_shown || self.typed_at.is_some_and(is_recent) {
            return;
        }
        self.typed_at = Some(Instant::now());
        let posting = &*self.posting;
        if let Err(error) = posting.bot.connector.show_typing(&posting.answer.origin.place).await {
            debug!(bot = posting.bot.key, "cannot show that the bot types: {error}");
        }
    }
}

impl Posting<'_> {
    /// Stores the progress of the answer.
    pub(super) async fn save(&self) -> Result<(), StoreError> {
        let (answer, node) = (&self.answer, self.context.node());
        let (key, progress) = (answer.key.clone(), answer.progress.clone());
        self.context.store().save_chat_answer(answer.schedule, key, progress, node).await
    }

    /// Reads the waiting note. It does not change any more after the progress of the answer was stored.
    pub(super) async fn read_waiting_note(&mut self) -> Result<(), StoreError> {
        let (schedule, key) = (self.answer.schedule, self.answer.key.clone());
        let stored = self.context.store().chat_answer(schedule, key).await?;
        self.answer.waiting_note = stored.and_then(|stored| stored.waiting_note);
        Ok(())
    }

    pub(super) fn post_key(&self, part: &str) -> String {
        post_key(&[&self.answer.schedule.to_string(), self.answer.key.as_str(), part])
    }

    /// Posts until the platform has accepted or refused the post, or until the agent loses its chat. Returns the refusal.
    pub(super) async fn post_until_done(&mut self, post: &Post) -> Result<Posted, ChatError> {
        let mut failures = 0;
        loop {
            let error = match self.bot.connector.post(post).await {
                Ok(posted) => return Ok(posted),
                Err(error) => error,
            };
            failures += 1;
            let channel = &post.place.channel;
            let wait = match &error {
                error if error.is_temporary() => wait_after(error, failures),
                ChatError::Revoked { .. } => REVOKED_WAIT,
                _ => {
                    warn!(bot = self.bot.key, channel, "a part of an answer is not posted: {error}");
                    return Err(error);
                }
            };
            if failures == 1 {
                warn!(
                    bot = self.bot.key,
                    channel, "cannot post a part of an answer now; it is tried again: {error}"
                );
            }
            tokio::time::sleep(wait).await;
            // A reload of the config may have replaced the bot, for example because of a new token.
            if let Some(bot) = self.context.bot_of(&self.answer.agent, self.bot.platform) {
                self.bot = bot;
            }
            if self.context.chat_of(&self.answer.agent, self.bot.platform).is_none() {
                self.has_no_chat = true;
                return Err(error);
            }
        }
    }
}

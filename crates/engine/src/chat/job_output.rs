//! Posts the output of a job that runs, or ran, on this node: one post after the other, each counted in the store.

use std::time::Duration;

use cowhand_chat::{Button, ButtonStyle, ChatError, OutgoingFile, Post};
use cowhand_core::chat::render::{OutputRenderer, RenderedPost};
use cowhand_core::chat::texts;
use cowhand_core::id::JobId;
use cowhand_core::job::{Job, JobStatus};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::{debug, warn};

use super::answer::{AnswerStep, Posting};
use super::asks::post::AskWatch;
use super::buttons::ButtonValue;
use super::output_lines::OutputLines;
use super::progress_tries::ProgressTries;
use super::sent_files::SentFiles;
use crate::fleet::{FleetError, OutputStream};
use cowhand_store::{AnsweredJob, StoreError};
use cowhand_system::fault;

/// Time between two checks whether the progress message has to change.
const PROGRESS_TICK: Duration = Duration::from_millis(500);
/// Shortest time between two edits of the progress message.
const PROGRESS_EVERY: Duration = Duration::from_millis(1_500);
/// Time after which a job gets a progress message.
const PROGRESS_AFTER: Duration = Duration::from_secs(2);
/// Time between two requests that show that the bot is typing. Discord shows it for about ten seconds.
const TYPING_EVERY: Duration = Duration::from_secs(8);
/// Number of ticks without output after which the output of an attempt that has ended counts as read.
const QUIET_TICKS: u32 = 6;

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
    progress_tries: ProgressTries,
    /// Number of ticks since the last line of output.
    quiet_ticks: u32,
    /// Last change of the store that was checked.
    seen: Option<i64>,
    /// True if the job waits for its next attempt.
    waits: bool,
}

impl<'a, 'b> OutputPosts<'a, 'b> {
    /// Begins to post the output of a job, or continues after the last post of this node.
    pub(super) async fn begin(posting: &'a mut Posting<'b>, job: &JobId) -> Result<Self, StoreError> {
        let node = posting.context.node();
        posting.keep_output();
        let answer = &mut posting.answer;
        if answer.progress.job.as_ref() != Some(job) || answer.node.as_ref() != Some(&node) {
            answer.progress.begin_job(job.clone(), answer.node.as_deref(), &node);
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
            progress_tries: ProgressTries::default(),
            quiet_ticks: 0,
            seen: None,
            waits: false,
        })
    }

    /// Posts the output until the job has ended, waits for its next attempt, or runs on another node.
    pub(super) async fn post(mut self) -> Result<AnswerStep, StoreError> {
        if self.posting.must_stop {
            return Ok(AnswerStep::Later);
        }
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
        if is_live || !is_here || self.posting.must_stop {
            return Ok(AnswerStep::Later);
        }
        self.posting.post_asks(&self.job).await?;
        self.post_end(&history.job).await?;
        Ok(if self.posting.must_stop { AnswerStep::Later } else { AnswerStep::Done })
    }

    fn give_up(&self, error: &FleetError) -> AnswerStep {
        warn!(job = %self.job, "cannot read the output of a job for its chat; it is tried again: {error}");
        AnswerStep::Later
    }

    async fn follow(&mut self, output: OutputStream) -> Result<(), FleetError> {
        let (mut tick, mut line) = (interval(PROGRESS_TICK), 0);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut output = OutputLines::of(output);
        while !self.posting.must_stop {
            tokio::select! {
                message = output.next() => {
                    let Some(message) = message.transpose()? else { return Ok(()) };
                    line = message.line;
                    self.post_files_before(line).await?;
                    self.asks.output_was_read();
                    self.quiet_ticks = 0;
                    for post in self.renderer.push(&message.message) {
                        self.post_once(post).await?;
                    }
                }
                _ = tick.tick() => {
                    if !self.continues().await? {
                        return Ok(());
                    }
                    self.post_files_before(line + 1).await?;
                    self.asks.tick(self.posting, &self.job).await?;
                    self.show_progress().await?;
                    self.show_typing().await;
                }
            }
        }
        Ok(())
    }

    /// Returns whether this node continues to post: the job is on this node and does not wait for its next attempt.
    /// Meanwhile, the next answer of the conversation may be posted.
    async fn continues(&mut self) -> Result<bool, StoreError> {
        self.quiet_ticks += 1;
        let (context, answer) = (self.posting.context, &self.posting.answer);
        let seen = context.store().committed();
        if self.seen != Some(seen) {
            let job = context.store().answered_job(answer.schedule, answer.key.clone()).await?;
            let is_here = job.node().is_none_or(|node| node == context.node());
            self.waits = matches!(job, AnsweredJob::Pending { .. });
            self.seen = Some(seen);
            if !is_here {
                return Ok(false);
            }
        }
        let has_posted_all = self.quiet_ticks > QUIET_TICKS;
        Ok(self.posting.check_chat() && !(self.waits && has_posted_all))
    }

    /// Posts the files and texts that belong to the end of the job, and shows the end in the progress message.
    async fn post_end(&mut self, job: &Job) -> Result<(), StoreError> {
        self.sent_files.read_again();
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
        // A late edit of the waiting note restores this text.
        self.posting.answer.progress.note_text = Some(text.clone());
        self.posting.save().await?;
        self.edit(&message, text, &[]).await;
        Ok(())
    }

    /// Makes a post of the output, unless it was made before.
    async fn post_once(&mut self, rendered: RenderedPost) -> Result<(), StoreError> {
        if self.posting.must_stop {
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
        if posting.must_stop {
            return Ok(());
        }
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
        if posting.must_stop {
            return Ok(());
        }
        if let Err(refusal) = posted {
            posting.note_refusal(refusal.to_string());
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
        if !self.progress_tries.may_try() || self.edited_at.is_some_and(is_recent) {
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
                self.progress_tries.note_success();
            }
            Err(error) => self.note_failure(&error),
        }
        Ok(())
    }

    /// Notes that the progress message could not be posted or edited.
    fn note_failure(&mut self, error: &ChatError) {
        debug!(bot = self.posting.bot.key, "cannot show the progress of a job: {error}");
        self.progress_tries.note_failure(error);
    }

    async fn edit(&mut self, message: &str, text: String, buttons: &[Button]) {
        self.edited_at = Some(Instant::now());
        let posting = &*self.posting;
        let redacted = posting.context.fleet.redactor().redact(&text).into_owned();
        let place = &posting.answer.origin.place;
        match posting.bot.connector.edit(place, message, &redacted, buttons).await {
            Ok(()) => {
                self.shown = text;
                self.progress_tries.note_success();
            }
            Err(error) => self.note_failure(&error),
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

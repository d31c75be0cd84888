//! Posts the files that the agent sends, between the posts of its output.

use cowhand_chat::{OutgoingFile, Post};
use cowhand_core::chat::markdown::{convert, post_limit};
use cowhand_core::chat::split::shorten;
use cowhand_core::chat::texts;
use tracing::warn;

use super::job_output::OutputPosts;
use cowhand_store::{SentFile, StoreError};
use cowhand_system::blocking::run_blocking;
use cowhand_system::fault;
use cowhand_system::remove::missing_is_ok;

/// Number of failed tries after which a file is not posted, so that it does not hold up its conversation. Each try of the
/// connector contains several requests.
const MAX_FILE_TRIES: u32 = 10;

/// The files of a job that have to be posted.
#[derive(Debug, Default)]
pub(super) struct SentFiles {
    /// Files in the order of the lines after which they are posted.
    files: Vec<SentFile>,
    /// Number of files that agents on this node had sent at the last read of the store; none before the first read.
    seen: Option<u64>,
}

impl SentFiles {
    /// Makes the next use read the list again. A request that was interrupted may have stored a file without counting
    /// it.
    pub(super) const fn read_again(&mut self) {
        self.seen = None;
    }
}

impl OutputPosts<'_, '_> {
    /// Posts the files that were sent before a line of the output.
    pub(super) async fn post_files_before(&mut self, line: u64) -> Result<(), StoreError> {
        let context = self.posting.context;
        let seen = context.fleet.sent_files();
        if self.sent_files.seen != Some(seen) {
            let (job, node) = (self.job.clone(), context.node());
            self.sent_files.files = context.store().unposted_chat_files(job, node).await?;
            self.sent_files.seen = Some(seen);
        }
        let is_due = |file: &SentFile| file.after_line < line;
        let due = self.sent_files.files.partition_point(is_due);
        let later = self.sent_files.files.split_off(due);
        for file in std::mem::replace(&mut self.sent_files.files, later) {
            if !self.posting.must_stop {
                self.post_file(file).await?;
            }
        }
        Ok(())
    }

    async fn post_file(&mut self, file: SentFile) -> Result<(), StoreError> {
        let posting = &mut *self.posting;
        let (store, now) = (posting.context.store().clone(), posting.context.now());
        store.chat_file_tried(file.job.clone(), file.number, now).await?;
        fault::point("chat_file_tried");
        let path = posting.context.fleet.state_folder().sent_file(&file.job, &file.key);
        let content = {
            let path = path.clone();
            run_blocking(move || std::fs::read(path)).await
        };
        let platform = posting.bot.platform;
        let part = format!("file {} {}", file.job, file.number);
        let text = shorten(&convert(&file.message, platform), post_limit(platform));
        let mut post = Post {
            place: posting.answer.origin.place.clone(),
            key: posting.post_key(&part),
            first_tried_at: file.tried_at.unwrap_or(now),
            reply_to: None,
            text,
            buttons: Vec::new(),
            files: Vec::new(),
        };
        let refused = match content {
            Ok(content) => {
                post.files.push(OutgoingFile { name: file.name.clone(), content });
                posting.post_at_most(&post, MAX_FILE_TRIES).await.err().map(|error| error.to_string())
            }
            Err(error) => {
                warn!(job = %file.job, "cannot read {}, which its agent has sent: {error}", path.display());
                Some("its content is no longer there".to_owned())
            }
        };
        if let Some(reason) = refused.filter(|_| !posting.must_stop) {
            post.key = posting.post_key(&format!("{part} refused"));
            post.text = texts::file_not_posted(&file.name, &reason, platform);
            post.files.clear();
            // `post_until_done` logs a refusal.
            posting.post_until_done(&post).await.ok();
            posting.note_refusal(format!("the file `{}`: {reason}", file.name));
            posting.save().await?;
        }
        if posting.must_stop {
            return Ok(());
        }
        fault::point("chat_file_posted");
        store.chat_file_posted(file.job.clone(), file.number, posting.context.now()).await?;
        let removed = {
            let path = path.clone();
            run_blocking(move || missing_is_ok(std::fs::remove_file(path))).await
        };
        if let Err(error) = removed {
            warn!(job = %file.job, "cannot remove {}: {error}", path.display());
        }
        Ok(())
    }
}

//! Files that people send with a message.
//!
//! A text file becomes a part of the prompt. Every other file gets a path; the node that runs the job saves it there
//! before each attempt (`attempt/chat_files.rs`).

use std::time::Duration;

use cowhand_core::chat::attachment::{
    self, AttachedFile, MAX_TEXTS_BYTES, choose, describe_missing, describe_saved, describe_text, saved_path,
};
use cowhand_core::chat::settings::AttachmentRules;
use cowhand_core::chat::{ChatAttachment, texts};
use tracing::info;

use super::accepted::AcceptedMessage;
use super::conversation::answer_place;
use super::posts::{ChatReply, post_key};
use crate::chat_bots::{Download, missing_reason};

/// Time limit for the download of a text file. The later messages of the channel wait meanwhile.
const TEXT_DOWNLOAD_TIME: Duration = Duration::from_secs(30);

impl AcceptedMessage<'_> {
    /// Returns the files for the agent, and tells the sender about the other files. `has_text` is true if the agent gets the
    /// text of the message.
    pub(super) async fn attachments(&self, has_text: bool) -> Vec<AttachedFile> {
        let files = self.message().attachments.iter().filter(|file| !file.is_voice);
        let files: Vec<&ChatAttachment> = files.collect();
        if files.is_empty() {
            return Vec::new();
        }
        let (agent, platform) = (&self.addressee.agent.name, self.bot.platform);
        let Some(rules) = &self.addressee.chat.attachments else {
            if has_text {
                self.tell(texts::attachments_ignored(agent, has_text, platform), "files").await;
            }
            return Vec::new();
        };
        let choice = choose(rules, &files, platform);
        let (mut attached, mut notices, mut texts_bytes) = (Vec::new(), choice.notices, 0);
        for file in choice.chosen {
            if attachment::is_text(file) {
                let (text, notice) = self.text_file(rules, file, MAX_TEXTS_BYTES - texts_bytes).await;
                texts_bytes = (texts_bytes + text.description.len()).min(MAX_TEXTS_BYTES);
                notices.extend(notice);
                attached.push(text);
            } else {
                attached.push(self.saved_file(rules, file));
            }
        }
        if !notices.is_empty() {
            self.tell(notices.join("\n"), "files").await;
        }
        attached
    }

    /// Returns a file that is saved before each attempt. The name of its folder is always the same for the same
    /// message.
    fn saved_file(&self, rules: &AttachmentRules, file: &ChatAttachment) -> AttachedFile {
        let message = self.message();
        let folder = post_key(&[&message.id, self.addressee.agent.name.as_str(), "files"]);
        let path = saved_path(rules, &folder, file);
        let description = describe_saved(file, &path);
        AttachedFile { attachment: file.clone(), description, path: Some(path) }
    }

    /// Returns a text file with its content, and a notice for the sender if the content is not available.
    async fn text_file(
        &self,
        rules: &AttachmentRules,
        file: &ChatAttachment,
        max_bytes: usize,
    ) -> (AttachedFile, Option<String>) {
        let message = self.message();
        let download = Download {
            place: &message.place,
            message: &message.id,
            attachment: file,
            max_bytes: rules.max_file_bytes,
            patience: TEXT_DOWNLOAD_TIME,
        };
        let redactor = self.context.fleet.redactor();
        let (description, notice) = match download.run(&*self.bot.connector).await {
            Ok(content) => {
                let content = String::from_utf8_lossy(&content);
                (describe_text(file, &redactor.redact(&content), max_bytes), None)
            }
            Err(error) => {
                let reason = redactor.redact(&error.to_string()).into_owned();
                info!(bot = self.bot.key, "cannot download a text file of a chat message: {reason}");
                let notice = texts::attachment_failed(file, &reason, self.bot.platform);
                (describe_missing(file, missing_reason(&error)), Some(notice))
            }
        };
        (AttachedFile { attachment: file.clone(), description, path: None }, notice)
    }

    /// Posts a notice below the message, once for each `part`.
    pub(super) async fn tell(&self, text: String, part: &str) {
        let message = self.message();
        let reply = ChatReply {
            place: answer_place(message),
            reply_to: Some(message.id.clone()),
            key: &[&message.id, self.addressee.agent.name.as_str(), part],
            first_tried_at: self.received.received_at,
            text,
            buttons: Vec::new(),
        };
        self.context.reply(self.bot, reply).await;
    }
}

/// Returns the files that are still attached to an edited message.
pub(super) fn still_attached(files: Vec<AttachedFile>, current: &[ChatAttachment]) -> Vec<AttachedFile> {
    let is_there = |file: &AttachedFile| current.iter().any(|current| current.id == file.attachment.id);
    files.into_iter().filter(is_there).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_were_removed_from_a_message_are_removed_from_its_job() {
        let file = |id: &str| ChatAttachment {
            id: id.to_owned(),
            name: "a.png".to_owned(),
            media_type: "image/png".to_owned(),
            bytes: 1,
            url: format!("https://example.org/{id}"),
            is_voice: false,
        };
        let attached =
            |id: &str| AttachedFile { attachment: file(id), description: id.to_owned(), path: None };
        // The platform states a new address for a file that stays.
        let current = ChatAttachment { url: "https://example.org/new".to_owned(), ..file("2") };
        assert_eq!(still_attached(vec![attached("1"), attached("2")], &[current]), [attached("2")]);
        assert_eq!(still_attached(vec![attached("1")], &[]), []);
    }
}

//! Files of posts.
//!
//! Slack accepts a file in three steps: it states an upload address and the id of the file, it receives the bytes, and
//! it shares the file in a channel. People see only the last step. The message that shares files cannot have metadata.
//! Therefore the text of a post is a separate message. The metadata of that message contains the ids of the files
//! before the files are shared, so a repeated post can ask Slack whether they are shared already.

use reqwest::header::CONTENT_TYPE;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::SlackConnector;
use super::api::{CallError, CallRepeat, transport_error};
use super::post_error::PostError;
use super::posting::{PostedText, thread_param, wait_after};
use crate::request_timeout::request_timeout;
use crate::{ChatError, OutgoingFile, Post};

const MAX_FILE_TRIES: u32 = 4;

impl SlackConnector {
    /// Uploads the files of a post, and returns their ids. Nobody sees them yet.
    pub(super) async fn upload_files(&self, post: &Post) -> Result<Vec<String>, PostError> {
        let mut ids = Vec::with_capacity(post.files.len());
        for file in &post.files {
            ids.push(self.upload(file).await?);
        }
        Ok(ids)
    }

    async fn upload(&self, file: &OutgoingFile) -> Result<String, PostError> {
        let mut failures = 0;
        loop {
            match self.try_upload(file).await {
                Ok(id) => return Ok(id),
                // An upload that was not shared has no effect.
                Err(CallError::Unknown { .. } | CallError::NotSent { .. })
                    if failures + 1 < MAX_FILE_TRIES =>
                {
                    failures += 1;
                    sleep(wait_after(failures)).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn try_upload(&self, file: &OutgoingFile) -> Result<String, CallError> {
        let params = vec![("filename", file.name.clone()), ("length", file.content.len().to_string())];
        let target = self.api.call("files.getUploadURLExternal", &params, CallRepeat::Always).await?;
        let text = |key: &str| target[key].as_str().unwrap_or_default();
        let timeout = request_timeout(file.content.len());
        let request = self.api.http.post(text("upload_url")).timeout(timeout);
        let request = request.header(CONTENT_TYPE, "application/octet-stream").body(file.content.clone());
        let response = request.send().await.map_err(|error| transport_error("the upload", error))?;
        if response.status().is_success() {
            return Ok(text("file_id").to_owned());
        }
        Err(CallError::Unknown { reason: format!("the upload: HTTP status {}", response.status().as_u16()) })
    }

    /// Shares the files of a post in its place, unless they are already shared.
    pub(super) async fn share_files(&self, post: &Post, posted: &PostedText) -> Result<(), PostError> {
        let (mut ids, mut must_look, mut failures) = (posted.files.clone(), posted.is_repeated, 0);
        loop {
            let is_there =
                if must_look { self.shared_state(&ids, post).await? } else { SharedState::Waiting };
            match is_there {
                SharedState::Shared => return Ok(()),
                SharedState::Waiting => {}
                SharedState::Unknown => {
                    ids = self.upload_files(post).await?;
                    self.record_files(post, &posted.ts, &ids).await?;
                }
            }
            match self.complete_upload(post, &ids).await {
                Ok(()) => return Ok(()),
                Err(CallError::Unknown { .. }) if failures + 1 < MAX_FILE_TRIES => {
                    failures += 1;
                    must_look = true;
                    sleep(wait_after(failures)).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn complete_upload(&self, post: &Post, ids: &[String]) -> Result<(), CallError> {
        let file = |(id, file): (&String, &OutgoingFile)| json!({ "id": id, "title": file.name });
        let files: Vec<Value> = ids.iter().zip(&post.files).map(file).collect();
        let mut params =
            vec![("files", Value::Array(files).to_string()), ("channel_id", post.place.channel.clone())];
        params.extend(thread_param(&post.place));
        self.api.call("files.completeUploadExternal", &params, CallRepeat::IfNotExecuted).await?;
        Ok(())
    }

    /// Returns whether the files are shared. Asks for the first file only, because Slack shares all files of a request
    /// together.
    async fn shared_state(&self, ids: &[String], post: &Post) -> Result<SharedState, ChatError> {
        let Some(id) = ids.first() else { return Ok(SharedState::Unknown) };
        match self.api.call("files.info", &vec![("file", id.clone())], CallRepeat::Always).await {
            Ok(answer) => {
                let channel = post.place.channel.as_str();
                let shares = &answer["file"]["shares"];
                let lists = ["channels", "groups", "ims"].map(|kind| answer["file"][kind].as_array());
                let is_listed = lists.into_iter().flatten().flatten().any(|id| id == channel);
                let is_shared = ["public", "private"].iter().any(|kind| shares[kind].get(channel).is_some());
                Ok(if is_listed || is_shared { SharedState::Shared } else { SharedState::Waiting })
            }
            Err(error) if matches!(error.code(), Some("file_not_found" | "file_deleted")) => {
                Ok(SharedState::Unknown)
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// State of an uploaded file on Slack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SharedState {
    Shared,
    /// The file is uploaded, but not shared.
    Waiting,
    /// Slack does not know the file, or has removed it.
    Unknown,
}

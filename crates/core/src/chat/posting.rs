//! Where an answer is posted, and how much of it has been posted.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::attachment::AttachedFile;
use super::{ChatPlace, ChatPlatform, ChatUser};
use crate::id::{AgentName, JobId};

/// The message that is answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerOrigin {
    pub platform: ChatPlatform,
    /// Place in which the answer is posted.
    pub place: ChatPlace,
    /// Id of the message.
    pub message: String,
    pub author: ChatUser,
    /// Person who ran the message again; none for the first run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeated_by: Option<ChatUser>,
    /// Text of the message, for a retry.
    pub text: String,
    /// Other parts of the prompt, for a retry and after an edit.
    pub details: MessageDetails,
    /// Link to the message; empty if there is none.
    pub url: String,
}

impl AnswerOrigin {
    /// Returns the person who caused the job: the author, or the person who ran the message again. The job counts for
    /// the limits of this person, and this person may stop the job.
    pub fn requester(&self) -> &ChatUser {
        self.repeated_by.as_ref().unwrap_or(&self.author)
    }
}

/// Optional parts of a chat message. A program that delivers messages through the library can leave them out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MessageDetails {
    /// Conversation whose session the job continues; none means the thread or the channel of the message.
    pub conversation: Option<String>,
    /// Name of the author for people; empty if it is not known.
    pub author_name: String,
    /// Name of the person who ran the message again; empty if the message was not repeated.
    pub retried_by: String,
    /// Files that were sent with the message.
    pub attachments: Vec<AttachedFile>,
    /// Earlier messages of the conversation for the prompt, oldest first; empty if the prompt contains none.
    pub earlier_messages: String,
}

/// The posted part of an answer. It is stored before and after each post, so that another daemon can continue.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AnswerProgress {
    /// Job whose output is posted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// Number of posts that were made from the output of this job on the current node.
    pub posted: u32,
    /// Number of posts of the answer before these posts. Posts are numbered over the whole answer.
    pub posted_before: u32,
    /// Time of the first try of the next post, if it was tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tried_at: Option<Timestamp>,
    /// The message that shows the progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress_message: Option<String>,
    /// Reason why the platform refused the last part of the answer that is missing in the chat; none if no part is
    /// missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_posted: Option<String>,
}

impl AnswerProgress {
    /// Returns the number of the next post within the answer.
    pub const fn next_post(&self) -> u32 {
        self.posted_before + self.posted
    }

    /// Continues the answer with the output of another job, or of the same job on another node.
    pub fn begin_job(&mut self, job: JobId) {
        self.posted_before += self.posted;
        (self.posted, self.job, self.tried_at) = (0, Some(job), None);
    }

    /// Counts a post that has been made.
    pub fn count_post(&mut self) {
        self.posted += 1;
        self.tried_at = None;
    }
}

/// Place of the posts of an ask, and which of them have been made. It is stored before and after each post.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PostedAsk {
    pub agent: AgentName,
    pub platform: ChatPlatform,
    pub place: ChatPlace,
    /// True if somebody may answer the ask in the chat, so that its posts show buttons.
    pub is_answerable: bool,
    /// Ids of the messages that have been posted. The last message has the buttons.
    pub messages: Vec<String>,
    /// True if all messages have been posted.
    pub is_complete: bool,
    /// Time of the first try of the next post, if it was tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tried_at: Option<Timestamp>,
}

impl PostedAsk {
    /// Counts a post that has been made.
    pub fn count_post(&mut self, message: String) {
        self.messages.push(message);
        self.tried_at = None;
    }

    /// Checks whether the ask is posted in the conversation of this place.
    pub fn is_in(&self, platform: ChatPlatform, place: &ChatPlace) -> bool {
        self.platform == platform && self.place.channel == place.channel && self.place.thread == place.thread
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn posts_are_numbered_over_all_jobs_of_an_answer() {
        let mut progress = AnswerProgress::default();
        progress.begin_job("job-2026-01-05-000001".parse().unwrap());
        progress.count_post();
        progress.count_post();
        assert_eq!(progress.next_post(), 2);
        progress.begin_job("job-2026-01-05-000002".parse().unwrap());
        assert_eq!((progress.posted, progress.next_post()), (0, 2));
    }
}

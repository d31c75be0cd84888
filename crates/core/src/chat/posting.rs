//! Where an answer is posted, and how much of it has been posted.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::attachment::AttachedFile;
use super::settings::ChatOutput;
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
    /// Name of the person who had the message run again, for people; empty if only its author did.
    pub retried_by: String,
    /// Files that were sent with the message.
    pub attachments: Vec<AttachedFile>,
    /// Earlier messages of the conversation for the prompt, oldest first; empty if the prompt contains none.
    pub earlier_messages: String,
    /// Id of the person who had the message run again. `trust` applies to this person, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeated_by: Option<String>,
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
    /// Number of posts that were made from the output of this job on other nodes. A node that runs a later attempt of
    /// the job again continues after its own posts.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub posted_elsewhere: BTreeMap<String, u32>,
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
    /// Time of this refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused_at: Option<Timestamp>,
    /// Settings with which the answer was begun. It keeps them to its end, because posts are counted, and other settings
    /// would give other posts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<ChatOutput>,
    /// Last text of the answer in the waiting note.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note_text: Option<String>,
}

impl AnswerProgress {
    /// Returns the number of the next post within the answer.
    pub const fn next_post(&self) -> u32 {
        self.posted_before + self.posted
    }

    /// Continues the answer with the output of another job, or of the same job on another node. `before` is the node
    /// that has posted so far.
    pub fn begin_job(&mut self, job: JobId, before: Option<&str>, node: &str) {
        if self.job.as_ref() == Some(&job) {
            self.posted_elsewhere.extend(before.map(|before| (before.to_owned(), self.posted)));
        } else {
            self.posted_elsewhere.clear();
        }
        // A post that was tried may have been made, so its number is not used again.
        let next = self.next_post() + u32::from(self.tried_at.is_some());
        let posted = self.posted_elsewhere.remove(node).unwrap_or_default();
        (self.posted, self.posted_before) = (posted, next.saturating_sub(posted));
        (self.job, self.tried_at) = (Some(job), None);
    }

    /// Notes that the platform has refused a part of the answer for good.
    pub fn note_refusal(&mut self, reason: String, now: Timestamp) {
        (self.not_posted, self.refused_at) = (Some(reason), Some(now));
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

    /// Checks whether all posts were there when a message of the same channel was written, so that its author can have
    /// read them.
    pub fn is_older_than(&self, message: &str) -> bool {
        let last = self.messages.last();
        self.is_complete && last.is_some_and(|last| self.platform.is_written_before(last, message))
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
    fn an_ask_is_older_than_a_message_that_follows_its_last_post() {
        let posted = |messages: &[&str], is_complete| PostedAsk {
            agent: "coder".parse().unwrap(),
            platform: ChatPlatform::Discord,
            place: ChatPlace { space: None, channel: "1".into(), thread: None, is_direct: true },
            is_answerable: true,
            messages: messages.iter().map(|&id| id.to_owned()).collect(),
            is_complete,
            tried_at: None,
        };
        for (messages, is_complete, expected) in [
            (&["10", "20"][..], true, true),
            (&["10", "20"], false, false),
            (&["10", "30"], true, false),
            (&["10", "25"], true, false),
            (&[], false, false),
        ] {
            assert_eq!(posted(messages, is_complete).is_older_than("25"), expected, "{messages:?}");
        }
    }

    #[test]
    fn posts_are_numbered_over_all_jobs_and_nodes_of_an_answer() {
        let job = |number: u32| format!("job-2026-01-05-00000{number}").parse().unwrap();
        let mut progress = AnswerProgress::default();
        progress.begin_job(job(1), None, "a");
        progress.count_post();
        progress.count_post();
        assert_eq!(progress.next_post(), 2);
        progress.begin_job(job(2), Some("a"), "a");
        assert_eq!((progress.posted, progress.next_post()), (0, 2));
        progress.count_post();
        // The next post was tried, but it is not known whether it was made.
        progress.tried_at = Some(Timestamp::UNIX_EPOCH);
        progress.begin_job(job(2), Some("a"), "b");
        assert_eq!((progress.posted, progress.next_post(), progress.tried_at), (0, 4, None));
        progress.count_post();
        progress.begin_job(job(2), Some("b"), "a");
        assert_eq!(
            (progress.posted, progress.next_post()),
            (1, 5),
            "the output on node a is posted from there"
        );
        progress.begin_job(job(2), Some("a"), "b");
        assert_eq!((progress.posted, progress.next_post()), (1, 5));
        progress.begin_job(job(3), Some("b"), "a");
        assert_eq!((progress.posted, progress.next_post()), (0, 5), "another job has no posts");
    }
}

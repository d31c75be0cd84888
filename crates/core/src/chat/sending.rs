//! Files that agents send into the chats that their jobs answer.

use super::ChatPlatform;
use crate::size;

/// Maximum number of files that one job sends.
pub const MAX_SENT_FILES: u32 = 20;
/// Maximum number of characters of the text that is posted with a file.
pub const MAX_SENT_MESSAGE_CHARS: usize = 1_500;

/// Returns the maximum size of a file. Discord takes 10 MiB from a bot. Slack takes more, but the file is held in memory.
pub const fn max_sent_bytes(platform: ChatPlatform) -> u64 {
    match platform {
        ChatPlatform::Discord => 10 << 20,
        ChatPlatform::Slack => 50 << 20,
    }
}

/// Reason why a file of an agent is not sent. The message is for the agent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendRefused {
    #[error("this job answers no chat message, so there is no chat for the file")]
    NoChat,
    #[error("`file_path` is missing")]
    NoPath,
    #[error("the file cannot be read, because the attempt runs on another node")]
    Elsewhere,
    #[error("{path:?} is not a file inside the working directory of the job")]
    NotInside { path: String },
    /// `hidden` is the hidden file, or the hidden folder that contains the file.
    #[error("{path:?} cannot be sent: {hidden} is hidden from agents")]
    Hidden { path: String, hidden: String },
    #[error("{path:?} cannot be sent: {reason}")]
    NotReadable { path: String, reason: String },
    #[error("{path:?} is empty")]
    Empty { path: String },
    #[error("{path:?} is too large; the maximum is {}", size::in_words(*.max_bytes))]
    TooLarge { path: String, max_bytes: u64 },
    #[error("`message` has {0} characters; the maximum is {MAX_SENT_MESSAGE_CHARS}")]
    LongMessage(usize),
    #[error("this job has sent {MAX_SENT_FILES} files already, which is the maximum")]
    TooMany,
}

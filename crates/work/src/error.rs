//! What can go wrong with a source.

pub mod github;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use cowhand_core::work::WorkItemId;

use github::{ApiFailure, GitHubApiError, GitHubAuthError};

/// Callers decide by it: what can be tried again, what a person has to mend.
#[derive(Debug, thiserror::Error)]
pub enum WorkSourceError {
    #[error("there is no work source {name:?}; there are {}", .available.join(", "))]
    Unknown { name: String, available: Vec<String> },
    #[error("a work source {0:?} is registered already")]
    Duplicate(String),
    /// The config names something that cannot be used.
    #[error("{0}")]
    Config(String),
    #[error("there is no work item {0}")]
    NotFound(WorkItemId),
    /// What was to be told would be about somebody else's work.
    #[error("the claim of {item} is not ours any more: it {stands}")]
    NotHeld { item: WorkItemId, stands: String },
    /// Another item has the name of ours.
    #[error("the claim of {0} is not ours any more: it is another item by now")]
    Replaced(WorkItemId),
    /// It may be slow, or not be reached.
    #[error("the source did not answer within {} seconds; `cowhand doctor` says whether it can be reached", .0.as_secs())]
    Silent(Duration),
    /// The source did not give the item back, and says why in a sentence.
    #[error("{item} is not ours to give back: {why}")]
    NotReleased { item: WorkItemId, why: String },
    /// A folder or file that could not be read or written.
    #[error("{}: {error}", .path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error(transparent)]
    GitHubApi(#[from] GitHubApiError),
    #[error(transparent)]
    GitHubAuth(#[from] GitHubAuthError),
    /// Of a source outside this crate.
    #[error(transparent)]
    Other(#[from] anyhow::Error),
}

impl WorkSourceError {
    /// Whether the same call may go well later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::GitHubApi(error) => error.is_retryable(),
            Self::Io { .. } | Self::Other(_) | Self::Silent(_) => true,
            Self::Unknown { .. }
            | Self::Duplicate(_)
            | Self::Config(_)
            | Self::NotFound(_)
            | Self::NotHeld { .. }
            | Self::Replaced(_)
            | Self::NotReleased { .. }
            | Self::GitHubAuth(_) => false,
        }
    }

    /// Names the queue, where the message does not say by itself which source is meant.
    #[must_use]
    pub fn of_queue(self, queue: &str) -> Self {
        match self {
            silent @ Self::Silent(_) => Self::Other(anyhow::anyhow!("{queue}: {silent}")),
            error => error,
        }
    }

    /// The item is somebody else's: there is nothing left to tell.
    pub fn is_moot(&self) -> bool {
        matches!(self, Self::NotHeld { .. } | Self::Replaced(_) | Self::NotReleased { .. })
    }

    /// The item is not where it was. It may come back: a folder that is not mounted is empty, too.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::NotFound(_))
    }

    /// What the outside system asked us to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::GitHubApi(GitHubApiError { kind: ApiFailure::RateLimit { wait, .. }, .. }) => *wait,
            _ => None,
        }
    }
}

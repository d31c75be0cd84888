//! Errors of work sources.

pub mod github;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use cowhand_core::duration;
use cowhand_core::work::WorkItemId;

use github::{ApiFailure, GitHubApiError, GitHubAuthError};

/// An error of a source. The variant decides whether callers retry or inform a person.
#[derive(Debug, thiserror::Error)]
pub enum WorkSourceError {
    #[error("no work source is registered under the name {name:?}; registered: {}", .available.join(", "))]
    Unknown { name: String, available: Vec<String> },
    #[error("a work source {0:?} is registered already")]
    Duplicate(String),
    /// The config contains a value that cannot be used.
    #[error("{0}")]
    Config(String),
    #[error("there is no work item {0}")]
    NotFound(WorkItemId),
    /// The claimant no longer holds the item, so it may not change the item. `state` continues a sentence that
    /// begins with "the item".
    #[error("this fleet no longer has the claim of {item}: the item {state}")]
    NotHeld { item: WorkItemId, state: String },
    /// Another item now has the id of the claimed item.
    #[error("this fleet no longer has the claim of {0}: the id now belongs to another item")]
    Replaced(WorkItemId),
    /// The source did not answer in time.
    #[error("the source did not answer within {}; check with `cowhand doctor` whether it can be reached", duration::exact(*.0))]
    Silent(Duration),
    /// The source did not release the item; `why` is a sentence with the reason.
    #[error("this fleet cannot release {item}: {why}")]
    NotReleased { item: WorkItemId, why: String },
    /// A folder or file could not be read or written.
    #[error("{}: {error}", .path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error(transparent)]
    GitHubApi(#[from] GitHubApiError),
    #[error(transparent)]
    GitHubAuth(#[from] GitHubAuthError),
    /// An error of a source outside this crate.
    #[error(transparent)]
    Other(#[from] anyhow::Error),
}

impl WorkSourceError {
    /// Returns true if the same call can succeed later.
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

    /// Adds the name of the queue to an error whose message does not identify the source.
    #[must_use]
    pub fn of_queue(self, queue: &str) -> Self {
        match self {
            silent @ Self::Silent(_) => Self::Other(anyhow::anyhow!("{queue}: {silent}")),
            error => error,
        }
    }

    /// Returns true if another delivery of the result or release is useless: the claimant no longer holds the item, or
    /// the source refused to release it.
    pub fn is_claim_lost(&self) -> bool {
        matches!(self, Self::NotHeld { .. } | Self::Replaced(_) | Self::NotReleased { .. })
    }

    /// Returns true if the item was not found. It may be found later: for example, a folder that is not mounted seems
    /// to be empty.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::NotFound(_))
    }

    /// Returns the wait that the outside system asks for; `None` if it states no wait.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::GitHubApi(GitHubApiError { kind: ApiFailure::RateLimit { wait, .. }, .. }) => *wait,
            _ => None,
        }
    }
}

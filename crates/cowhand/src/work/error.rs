//! What can go wrong with a source.

use std::time::Duration;

use cowhand_core::work::WorkItemId;

use super::github::{ApiFailure, GitHubApiError, GitHubAuthError};

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
    /// Somebody else has it, or may have it by now: whoever works on it should stop.
    #[error("the claim on {item} does not hold any more: {message}")]
    ClaimLost { item: WorkItemId, message: String },
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
            Self::Other(_) => true,
            Self::Unknown { .. }
            | Self::Duplicate(_)
            | Self::Config(_)
            | Self::ClaimLost { .. }
            | Self::GitHubAuth(_) => false,
        }
    }

    /// What the outside system asked us to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::GitHubApi(GitHubApiError { kind: ApiFailure::RateLimit { wait, .. }, .. }) => *wait,
            _ => None,
        }
    }
}

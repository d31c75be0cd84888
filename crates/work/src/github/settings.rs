//! Settings of the GitHub source.

use std::time::Duration;

use cowhand_core::github;
use cowhand_core::work_source::{ConfiguredSource, IssueLabels, default_exclude_labels};

use super::quota::RateLimitWarning;
use super::retry::RetryOptions;
use crate::WorkSourceError;

const DEFAULT_API_URL: &str = "https://api.github.com";

#[derive(Debug, Clone)]
pub struct GitHubSettings {
    /// `owner/repo`
    pub repo: String,
    /// Label of available work.
    pub ready: String,
    /// Label of claimed work.
    pub in_progress: String,
    /// Labels of issues that are ignored.
    pub exclude_labels: Vec<String>,
    /// True if a release restores the ready label.
    pub cleanup_on_failure: bool,
    pub api_url: String,
    pub retry: RetryOptions,
    pub warning: RateLimitWarning,
    pub connect_timeout: Duration,
    /// Time limit of one request, from its first byte to the last byte of the answer.
    pub timeout: Duration,
    #[doc(hidden)]
    pub claim_method: ClaimMethod,
}

/// Method that decides which claimant gets an issue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimMethod {
    /// The earliest marker decides. The markers are read again after `confirm_delay`, because by then every marker that
    /// was written before the claimant's own marker is visible.
    Marker { confirm_delay: Duration },
    /// Only the label decides. Two claimants can set it at the same time, so this method is only for the test that
    /// shows why markers exist.
    LabelOnly,
}

impl GitHubSettings {
    /// Returns the default settings.
    pub fn new(repo: impl Into<String>) -> Self {
        let IssueLabels { ready, in_progress } = IssueLabels::default();
        Self {
            repo: repo.into(),
            ready,
            in_progress,
            exclude_labels: default_exclude_labels(),
            cleanup_on_failure: true,
            api_url: DEFAULT_API_URL.into(),
            retry: RetryOptions::default(),
            warning: RateLimitWarning::default(),
            connect_timeout: Duration::from_secs(10),
            timeout: Duration::from_secs(30),
            claim_method: ClaimMethod::Marker { confirm_delay: Duration::from_secs(2) },
        }
    }

    /// Reads the settings and credentials.
    pub(super) fn from_config(source: &ConfiguredSource) -> Result<(Self, &github::Auth), WorkSourceError> {
        let ConfiguredSource::Github {
            repo, labels, exclude_labels, cleanup_on_failure, api_url, auth, ..
        } = source
        else {
            return Err(WorkSourceError::Config("this work source is not of type github".into()));
        };
        let repo = repo.as_ref().ok_or_else(|| {
            WorkSourceError::Config("work_source: repo is missing; expected owner/repo".into())
        })?;
        let settings = Self {
            ready: labels.ready.clone(),
            in_progress: labels.in_progress.clone(),
            exclude_labels: exclude_labels.clone(),
            cleanup_on_failure: *cleanup_on_failure,
            api_url: api_url.clone().unwrap_or_else(|| DEFAULT_API_URL.to_owned()),
            ..Self::new(repo)
        };
        Ok((settings, auth))
    }
}

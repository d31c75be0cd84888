//! GitHub issues as a work source.
//!
//! `adapter` is the source; `claim` and `finish` are what it does to an issue, `lapsed` finds those that the dead have
//! left, `marker` has the rules of who has it.
//! Below them `issues` says what is asked and `client` how: `retry`, `limits`, `quota`, `pages` and `cache` are its
//! parts, `people` is about those who write, `auth`, `app`, `identity` and `scopes` are about who asks, `advice` says what to check when that is refused, and `check` tells `doctor`.

mod adapter;
mod advice;
mod app;
mod auth;
mod cache;
mod check;
mod claim;
mod client;
mod cursor;
mod expired;
mod finish;
mod identity;
mod issues;
mod limits;
mod listing;
mod marker;
mod models;
mod pages;
mod people;
mod quota;
mod reply;
mod retry;
mod scopes;
mod settings;
mod text;

pub use adapter::{GitHubWorkSource, SOURCE_TYPE};
pub use client::GitHubClient;
pub use issues::encoded;
pub use limits::{extract_rate_limit_info, is_rate_limit_response};
pub use listing::{Branch, IssueOrPull, Lists};
pub use people::{CollaboratorPermission, People, RepositoryAccess};
pub use quota::{OnWarning, RateLimitWarning};
pub use retry::{RetryOptions, calculate_backoff_delay};
pub use settings::{Claiming, GitHubSettings};

pub use crate::error::github::{ApiFailure, GitHubApiError, GitHubAuthError, TokenFacts};
pub use crate::quota::{Quota, RateLimitInfo};

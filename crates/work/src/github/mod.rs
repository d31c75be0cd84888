//! GitHub issues as a work source.
//!
//! `adapter` is the source, with its `settings` and the `cursor` of its lists; `claim` and `finish` change an issue,
//! `expired` finds expired claims, `marker` has the rules of claims, and `comment_text` has the text of comments. Below
//! them, `issues` has the requests and `client` sends them, with `retry`, `limits`, `quota`, `pages` and `cache`;
//! `response` and `models` read the answers. `listing` reads whole lists for triggers; `author_permissions` reads the
//! permissions of authors; `auth`, `app`, `identity` and `scopes` are about credentials; `advice` states what to check
//! after a refusal; `check` has the findings for `doctor`.

mod adapter;
mod advice;
mod app;
mod auth;
mod author_permissions;
mod cache;
mod check;
mod claim;
mod client;
mod comment_text;
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
mod quota;
mod response;
mod retry;
mod scopes;
mod settings;

pub use adapter::{GitHubWorkSource, SOURCE_TYPE};
pub use author_permissions::{AuthorPermissions, CollaboratorPermission, RepositoryAccess};
pub use client::GitHubClient;
pub use issues::encoded;
pub use limits::{extract_rate_limit_info, is_rate_limit_response};
pub use listing::{IssueOrPull, Lists, PullDetails};
pub use quota::{OnWarning, RateLimitWarning};
pub use retry::{RetryOptions, calculate_backoff_delay};
pub use settings::{ClaimMethod, GitHubSettings};

pub use crate::error::github::{ApiFailure, GitHubApiError, GitHubAuthError, TokenFacts};
pub use crate::quota::{Quota, RateLimitInfo};

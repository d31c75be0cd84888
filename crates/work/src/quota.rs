//! Requests that the outside system has answered, and requests that it still allows.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

/// Use of GitHub's rate limit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Quota {
    /// The rate limit `core`, from the last answer that stated this limit.
    pub rate_limit: Option<RateLimitInfo>,
    /// Number of answered requests, including `conditional_hits`.
    pub requests: u64,
    /// Number of answers with the status 304, which says that nothing has changed. They do not count against the limit.
    pub conditional_hits: u64,
    /// Number of times that the client waited, after a failure or because of `blocked_until`.
    pub waits: u64,
    /// Total length of these waits.
    pub waited: Duration,
    /// End of the time in which GitHub wants no requests.
    pub blocked_until: Option<Timestamp>,
}

/// One of GitHub's rate limits, as an answer of GitHub states it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RateLimitInfo {
    /// Maximum number of requests in one period of the limit. The period of `core` is an hour.
    pub limit: u64,
    pub remaining: u64,
    /// Time at which `remaining` is reset to `limit`.
    pub reset: Timestamp,
    /// Name of the limit: `core`, `search` and so on.
    pub resource: String,
}

//! How many requests the outside system has answered, and how many it still allows.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

/// How things stand with GitHub's patience.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Quota {
    /// The main budget as last told.
    pub rate_limit: Option<RateLimitInfo>,
    pub requests: u64,
    /// Answers that nothing had changed; they cost nothing.
    pub conditional_hits: u64,
    /// How often and how long calls have waited before they tried again.
    pub waits: u64,
    pub waited: Duration,
    /// Set while GitHub wants to hear nothing from us.
    pub blocked_until: Option<Timestamp>,
}

/// One of GitHub's budgets, as its last answer told it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RateLimitInfo {
    /// The most requests in an hour.
    pub limit: u64,
    pub remaining: u64,
    /// When `remaining` is `limit` again.
    pub reset: Timestamp,
    /// Which budget: `core`, `search` and so on.
    pub resource: String,
}

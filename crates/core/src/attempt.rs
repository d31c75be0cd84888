//! The end of an attempt: what is written down of it, in one transaction with the end of its job.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::breaker::Breaker;
use crate::job::{JobUsage, Outcome};

/// What is to be written down of an attempt that is over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settlement {
    pub outcome: Outcome,
    pub usage: Option<JobUsage>,
    /// It was cut short, and is one that tells only in the end what it has used.
    pub silent: bool,
    /// What the agent left for its hooks.
    pub metadata: Option<Value>,
    /// What its schedule makes of a row of such ends; none where nobody knows its rules.
    #[serde(skip)]
    pub breaker: Option<Breaker>,
    /// It is known to have used no tool.
    pub used_no_tool: bool,
    /// It met a limit, and waits for its end.
    pub limit: Option<Limit>,
    /// When the agent ended, if that is known; it may be settled much later.
    pub ended_at: Option<Timestamp>,
}

impl From<Outcome> for Settlement {
    fn from(outcome: Outcome) -> Self {
        Self {
            outcome,
            usage: None,
            silent: false,
            metadata: None,
            breaker: None,
            used_no_tool: false,
            limit: None,
            ended_at: None,
        }
    }
}

/// A limit that an attempt met at its provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// Its end, as the provider tells it.
    pub resets_at: Option<Timestamp>,
}

//! The settlement of an attempt: the data that is stored when the attempt has ended, in one transaction with the new
//! state of its job.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::breaker::Breaker;
use crate::job::{JobUsage, Outcome};
use crate::moment::{BootTime, Moment};

/// Data that is stored when an attempt has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settlement {
    pub outcome: Outcome,
    pub usage: Option<JobUsage>,
    /// True if the runtime reports its usage only at its end, and the attempt did not complete, so the report may be
    /// missing.
    pub silent: bool,
    /// Metadata that the agent left for its hooks.
    pub metadata: Option<Value>,
    /// Breaker rules of the job's schedule; none if the schedule is not known or the job is confined. Without them, the
    /// job does not count for the breaker.
    #[serde(skip)]
    pub breaker: Option<Breaker>,
    /// True if the attempt is known to have used no tool.
    pub used_no_tool: bool,
    /// Usage limit that the attempt reached, if the provider is to be parked for it. The job waits until the limit
    /// ends.
    pub limit: Option<UsageLimit>,
    /// Time at which the agent ended, if known. The attempt can be settled much later.
    pub ended_at: Option<Timestamp>,
    /// The boot clock at that time, if it was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_boot: Option<BootTime>,
    /// Time at which the agent was started, if this node knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_began_at: Option<Timestamp>,
}

impl Settlement {
    /// Returns when the agent ended, if that is known.
    pub fn ended(&self) -> Option<Moment> {
        Some(Moment { wall: self.ended_at?, boot: self.ended_boot })
    }
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
            ended_boot: None,
            agent_began_at: None,
        }
    }
}

/// A usage limit of the provider that an attempt reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageLimit {
    /// End of the limit, if the provider reports it.
    pub resets_at: Option<Timestamp>,
}

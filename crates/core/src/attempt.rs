//! The rules with which an attempt is started, and its settlement: the data that is stored when the attempt has ended,
//! in one transaction with the new state of its job.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::breaker::Breaker;
use crate::budget::{Budget, UsageReporting};
use crate::id::AgentName;
use crate::job::{JobUsage, Outcome};
use crate::moment::{BootTime, Moment};
use crate::policy::{Retry, Timeout};
use crate::roster::{Agent, Program};
use crate::runtime::Runtime;

/// The rules of the config with which an attempt was started. If the agent or schedule of the attempt is removed from
/// the config, these rules hold until the attempt is settled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttemptRules {
    pub retry: Retry,
    pub breaker: Option<Breaker>,
    pub timeout: Timeout,
    pub idle_timeout: Timeout,
    pub output_to_file: bool,
    /// Settings of the agent that are needed if it is no longer in the config.
    pub agent: AttemptAgent,
}

/// The settings of an agent that an attempt needs until the attempt is settled. No setting is a secret.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttemptAgent {
    /// Name of the runtime.
    pub runtime: String,
    /// Configured provider.
    pub provider: Option<String>,
    pub usage_reporting: UsageReporting,
    pub budget: Budget,
    pub ask_timeout: SignedDuration,
    /// True if the attempt can ask people.
    pub has_job_channel: bool,
}

impl AttemptAgent {
    pub fn of(agent: &Agent) -> Self {
        Self {
            runtime: agent.runtime().name().to_owned(),
            provider: agent.program.provider.clone(),
            usage_reporting: agent.usage_reporting(),
            budget: agent.budget,
            ask_timeout: agent.ask_timeout,
            has_job_channel: agent.needs_job_channel(),
        }
    }

    /// Returns an agent with these settings, except `usage_reporting`, and with defaults for all other settings. It takes
    /// the place of an agent that is no longer in the config.
    pub fn in_place_of(&self, removed: AgentName) -> Agent {
        let agent = Agent::new(removed);
        // A later version of cowhand may have stored a runtime that this version does not know. The default then takes
        // its place. This does not change how the output is read, because the reader is stored separately.
        let runtime = Runtime::named(&self.runtime).unwrap_or_default();
        Agent {
            program: Program { runtime, provider: self.provider.clone(), ..Program::default() },
            budget: self.budget,
            ask_timeout: self.ask_timeout,
            fleet_tools: self.has_job_channel,
            ..agent
        }
    }
}

/// Data that is stored when an attempt has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settlement {
    pub outcome: Outcome,
    pub usage: Option<JobUsage>,
    /// True if the attempt did not complete, and its runtime possibly reports no usage before the end of an attempt. The
    /// usage may then be missing.
    pub silent: bool,
    /// Metadata that the agent left for its hooks.
    pub metadata: Option<Value>,
    /// Breaker rules of the job's schedule; none if the schedule is not known or the job is confined. Without them, the
    /// job does not count for the breaker.
    #[serde(skip)]
    pub breaker: Option<Breaker>,
    /// True if the attempt is known to have used no tool.
    pub used_no_tool: bool,
    /// Usage limit that the attempt reached, if the provider is to be parked because of this limit. The job waits until
    /// the limit ends.
    pub limit: Option<UsageLimit>,
    /// Time at which the agent ended, if known. The attempt can be settled much later.
    pub ended_at: Option<Timestamp>,
    /// The boot clock at `ended_at`, if it was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_boot: Option<BootTime>,
    /// Time at which the agent was started, if this node knows that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_began_at: Option<Timestamp>,
    /// Steering messages that the attempt has, by their ids.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delivered: Vec<Uuid>,
}

impl Settlement {
    /// Returns when the agent ended, if that is known.
    pub fn ended(&self) -> Option<Moment> {
        Some(Moment { wall: self.ended_at?, boot: self.ended_boot })
    }
}

/// What a node found out about an attempt that it had started, after the attempt was settled because its lease had
/// expired. The job is not changed by this.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Superseded {
    /// The outcome; none if the agent was ended, because the job no longer belonged to the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// The whole usage of the attempt, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<JobUsage>,
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
            delivered: Vec::new(),
        }
    }
}

/// A usage limit of the provider that an attempt reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageLimit {
    /// End of the limit, if the provider reports it.
    pub resets_at: Option<Timestamp>,
}

//! The keys of a schedule: its trigger, its prompt and its policies.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::WorkSourceConfig;
use crate::breaker::Breaker;
use crate::filter::Filter;
use crate::notification::AgentNotify;
use crate::permission::Permissions;
use crate::policy::{Retry, Timeout, Timing};
use crate::sandbox::Sandbox;
use crate::trigger::TriggerConfig;
use crate::trust::Trust;
use crate::workspace::Isolation;

/// One trigger, its prompt and its policies.
// The order matters: the flattened structs take their keys first, and the trigger, which rejects unknown fields, gets
// the rest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Schedule")]
pub struct ScheduleConfig {
    #[serde(default)]
    pub prompt: Option<String>,
    /// Whether its trigger fires; with `false`, only a person can fire the schedule.
    #[serde(default)]
    pub enabled: Option<bool>,
    /// Former name of this schedule; `AGENT/SCHEDULE` if it was a schedule of another agent. This schedule takes over
    /// the history of the former schedule and, within the same agent, also its pending jobs.
    #[serde(default)]
    pub adopt: Option<String>,
    /// Conditions that its firings have to meet; other firings are recorded as skipped.
    #[serde(default)]
    pub filter: Option<Filter>,
    #[serde(default)]
    pub work_source: Option<WorkSourceConfig>,
    /// Program and arguments to run before each firing; only with exit code 0 does the firing run.
    #[serde(default)]
    #[schemars(length(min = 1))]
    pub when_command: Option<Vec<String>>,
    /// Store the output of its jobs also as plain text, in `jobs/ID/output.log` of the state folder.
    #[serde(default, rename = "outputToFile")]
    pub output_to_file: Option<bool>,
    #[serde(default)]
    #[schemars(extend("x-herdctl" = "`session.policy` of the agent decides"))]
    pub resume_session: Option<bool>,
    /// Isolation of each of its jobs; unset keys are taken from the agent.
    #[serde(default)]
    pub isolation: Option<Isolation>,
    /// Permissions in addition to the agent's; the stricter decision counts.
    #[serde(default)]
    pub permissions: Option<Permissions>,
    /// Retry policy; unset keys are taken from the agent.
    #[serde(default)]
    pub retry: Option<Retry>,
    /// Maximum duration of one attempt, including its preparation; unset means the agent's.
    #[serde(default)]
    pub timeout: Option<Timeout>,
    /// Maximum time without output of an attempt; unset means the agent's.
    #[serde(default)]
    pub idle_timeout: Option<Timeout>,
    /// Restrictions on the processes of its jobs, in addition to the agent's; the stricter rule counts.
    #[serde(default)]
    pub sandbox: Option<Sandbox>,
    /// Conditions under which it pauses itself; unset keys are taken from the agent.
    #[serde(default)]
    pub breaker: Option<Breaker>,
    /// Rules that report its incidents to people, instead of the rules of its agent.
    #[serde(default)]
    pub notify: Option<AgentNotify>,
    /// Trust rules in addition to the agent's; the stricter decision counts.
    #[serde(default)]
    pub trust: Option<Trust>,
    #[serde(flatten)]
    pub timing: Timing,
    #[serde(flatten)]
    pub trigger: TriggerConfig,
}

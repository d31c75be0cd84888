//! A schedule: when, what, and how to deal with time.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::WorkSource;
use crate::breaker::Breaker;
use crate::filter::Filter;
use crate::permission::Permissions;
use crate::policy::{Retry, Timeout, Timing};
use crate::sandbox::Sandbox;
use crate::trigger::TriggerConfig;
use crate::trust::Trust;
use crate::workspace::Isolation;

/// One trigger, its prompt and its policies.
// The order matters: the flattened structs take their keys first, and the trigger, which refuses unknown fields,
// gets what is left.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Schedule {
    #[serde(default)]
    pub prompt: Option<String>,
    /// `false` means that it never fires by itself.
    #[serde(default)]
    pub enabled: Option<bool>,
    /// What this schedule was called before, if it has a new name: what it has done and what waits come with it.
    /// `AGENT/SCHEDULE` for one of another agent.
    #[serde(default)]
    pub adopt: Option<String>,
    /// What its firings must be about; the rest is written down as skipped.
    #[serde(default)]
    pub filter: Option<Filter>,
    #[serde(default)]
    pub work_source: Option<WorkSource>,
    /// A program and its arguments, asked before each firing: exit code 0 lets it run, any other skips it.
    #[serde(default)]
    #[schemars(length(min = 1))]
    pub when_command: Option<Vec<String>>,
    /// Keeps the output of its jobs as plain text, too, in `jobs/ID/output.log` of the state folder.
    #[serde(default, rename = "outputToFile")]
    pub output_to_file: Option<bool>,
    #[serde(default)]
    #[schemars(extend("x-herdctl" = "`session.policy` of the agent decides"))]
    pub resume_session: Option<bool>,
    /// What each of its jobs has to itself; what is unset, the agent says.
    #[serde(default)]
    pub isolation: Option<Isolation>,
    /// Beside the agent's: of both the stricter count.
    #[serde(default)]
    pub permissions: Option<Permissions>,
    /// Unset means the agent's.
    #[serde(default)]
    pub retry: Option<Retry>,
    /// Unset means the agent's.
    #[serde(default)]
    pub timeout: Option<Timeout>,
    /// Unset means the agent's.
    #[serde(default)]
    pub idle_timeout: Option<Timeout>,
    /// What the processes of its jobs may reach, within what the agent's may: the stricter of the two holds.
    #[serde(default)]
    pub sandbox: Option<Sandbox>,
    /// Unset means the agent's.
    #[serde(default)]
    pub breaker: Option<Breaker>,
    /// Beside the agent's: both have to trust whoever wrote what it is about.
    #[serde(default)]
    pub trust: Option<Trust>,
    #[serde(flatten)]
    pub timing: Timing,
    #[serde(flatten)]
    pub trigger: TriggerConfig,
}

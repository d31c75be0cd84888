//! The fleet file: `cowhand.yaml` or `herdctl.yaml`.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    Agent, Docker, Instances, McpServer, PermissionMode, Plugin, Session, Traces, WorkSource,
    WorkingDirectory,
};
use crate::breaker::Breaker;
use crate::budget::{Budget, FleetBudget};
use crate::interval::Interval;
use crate::permission::Permissions;
use crate::policy::{Retry, Timeout, Timing};
use crate::price::Prices;
use crate::provider::Provider;
use crate::retention::Retention;
use crate::sandbox::Sandbox;
use crate::server::Server;
use crate::trust::Trust;
use crate::workspace::Isolation;

/// A fleet: its agents, what they have in common, and other fleets below it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("x-strict" = true))]
pub struct FleetFile {
    #[schemars(range(min = 1))]
    pub version: Option<u32>,
    pub fleet: FleetInfo,
    /// What every agent of this fleet and of the fleets below starts from.
    #[schemars(extend("x-partial" = true))]
    pub defaults: Defaults,
    #[schemars(extend("x-old-names" = ["workspace"], "x-herdctl" = "set it on agents or in `defaults`"))]
    pub working_directory: Option<WorkingDirectory>,
    /// Fleet files below this one.
    pub fleets: Vec<FleetReference>,
    /// By `path`, or written out.
    #[schemars(extend("x-partial" = true))]
    pub agents: Vec<AgentEntry>,
    /// `postgres://…`, for a fleet on several machines; unset means a file in the state folder. Only the root
    /// file's counts.
    #[schemars(regex(pattern = "^postgres(ql)?://"), extend("x-secret" = true))]
    pub store: Option<String>,
    /// What is kept of finished jobs where `defaults` or an agent says nothing, and of agents that have left the
    /// fleet; unset means everything.
    pub retention: Option<Retention>,
    /// What agents share, by name: limits that hold for all of them together. Only the root file's counts.
    pub providers: Option<IndexMap<String, Provider>>,
    /// What models cost, by their names, for runtimes that tell tokens but no dollars. Only the root file's counts.
    pub prices: Option<Prices>,
    /// What all agents together may spend. Only the root file's counts.
    pub budget: Option<FleetBudget>,
    pub server: Option<Server>,
    pub traces: Option<Traces>,
    #[schemars(extend("x-herdctl" = "webhooks arrive at `server`, and each schedule names its own secret"))]
    pub webhooks: Option<Webhooks>,
    /// herdctl's way to say `server.listen`. Only the root file's counts.
    pub web: Option<Web>,
    #[schemars(extend("x-herdctl" = "set it in `defaults`"))]
    pub docker: Option<Docker>,
    #[schemars(extend("x-herdctl" = "set it on agents"))]
    pub chat: Option<Value>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("x-strict" = true))]
pub struct FleetInfo {
    /// The fleet's name where it is part of another fleet.
    #[schemars(regex(pattern = "^[a-zA-Z0-9][a-zA-Z0-9_-]*$"), extend("format" = "name"))]
    pub name: Option<String>,
    pub description: Option<String>,
}

/// What agents inherit, key by key, and what their schedules inherit.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Defaults {
    #[schemars(extend("x-old-names" = ["workspace"]))]
    pub working_directory: Option<WorkingDirectory>,
    /// herdctl's way to say `sandbox: docker`.
    pub docker: Option<Docker>,
    pub work_source: Option<WorkSource>,
    pub instances: Option<Instances>,
    pub session: Option<Session>,
    pub isolation: Option<Isolation>,
    pub sandbox: Option<Sandbox>,
    pub model: Option<String>,
    #[schemars(range(min = 1))]
    pub max_turns: Option<u32>,
    pub permission_mode: Option<PermissionMode>,
    pub permissions: Option<Permissions>,
    pub ask_timeout: Option<Interval>,
    pub tools: Option<Vec<String>>,
    pub allowed_tools: Option<Vec<String>>,
    pub denied_tools: Option<Vec<String>>,
    pub plugins: Option<Vec<Plugin>>,
    pub partial_messages: Option<bool>,
    pub mcp_servers: Option<IndexMap<String, McpServer>>,
    #[schemars(inner(regex(pattern = "^[A-Za-z_][A-Za-z0-9_]*$")))]
    pub pass_env: Option<Vec<String>>,
    pub retry: Option<Retry>,
    pub timeout: Option<Timeout>,
    pub idle_timeout: Option<Timeout>,
    pub retention: Option<Retention>,
    /// What each agent may spend.
    pub budget: Option<Budget>,
    pub breaker: Option<Breaker>,
    pub trust: Option<Trust>,
    #[serde(flatten)]
    pub timing: Timing,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FleetReference {
    /// The other fleet's file, relative to this one.
    #[schemars(length(min = 1))]
    pub path: String,
    /// Its name here; unset means its own `fleet.name`, then the name of its directory.
    #[serde(default)]
    #[schemars(regex(pattern = "^[a-zA-Z0-9][a-zA-Z0-9_-]*$"), extend("format" = "name"))]
    pub name: Option<String>,
    /// Laid over the other file.
    #[serde(default)]
    #[schemars(extend("x-partial" = true))]
    pub overrides: Option<Box<FleetFile>>,
}

/// An agent of the fleet: a file by `path`, or the agent itself.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("x-strict" = true))]
pub struct AgentEntry {
    /// The agent's file, relative to this one.
    #[schemars(length(min = 1))]
    pub path: Option<String>,
    /// Laid over the agent.
    #[schemars(extend("x-partial" = true))]
    pub overrides: Option<Box<Agent>>,
    #[serde(flatten)]
    pub agent: Agent,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Webhooks {
    pub enabled: Option<bool>,
    #[schemars(range(min = 1))]
    pub port: Option<u16>,
    /// The environment variable that holds the secret.
    pub secret_env: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Web {
    pub enabled: Option<bool>,
    #[schemars(range(min = 1))]
    pub port: Option<u16>,
    /// `localhost`, or an IP address of this machine.
    pub host: Option<String>,
    #[schemars(range(min = 1), extend("x-herdctl" = "the dashboard has no such setting"))]
    pub session_expiry_hours: Option<u32>,
    #[schemars(extend("x-herdctl" = "no browser is opened"))]
    pub open_browser: Option<bool>,
    #[schemars(extend("x-herdctl" = "the dashboard has no such setting"))]
    pub tool_results: Option<bool>,
    #[schemars(extend("x-herdctl" = "the dashboard has no such setting"))]
    pub message_grouping: Option<MessageGrouping>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MessageGrouping {
    Separate,
    Grouped,
}

//! The keys of the fleet file, `cowhand.yaml` or `herdctl.yaml`.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{AgentConfig, Docker, InheritedSettings, MessageGrouping, NotifyConfig, WorkingDirectory};
use crate::budget::FleetBudget;
use crate::lease::LeaseConfig;
use crate::policy::Timing;
use crate::price::Prices;
use crate::provider::Provider;
use crate::retention::Retention;
use crate::server::ServerConfig;
use crate::traces::TracesConfig;

/// A fleet: its agents, their common settings, and other fleets below it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("x-strict" = true))]
pub struct FleetFile {
    #[schemars(range(min = 1))]
    pub version: Option<u32>,
    pub fleet: FleetInfo,
    /// Default settings of every agent of this fleet and of the fleets below.
    #[schemars(extend("x-partial" = true))]
    pub defaults: Defaults,
    #[schemars(extend("x-old-names" = ["workspace"], "x-herdctl" = "set it on agents or in `defaults`"))]
    pub working_directory: Option<WorkingDirectory>,
    /// Fleet files below this one.
    pub fleets: Vec<FleetReference>,
    /// Agents, by `path` or written out.
    #[schemars(extend("x-partial" = true))]
    pub agents: Vec<AgentEntry>,
    /// Address of the database, `postgres://…`, for a fleet on several machines; unset means a file in the state
    /// folder. Only the key of the root file counts.
    #[schemars(regex(pattern = "^postgres(ql)?://"), extend("x-secret" = true, "x-address" = true, "format" = "postgres", "examples" = ["postgres://user@host/database"]))]
    pub store: Option<String>,
    /// Leases of the jobs on a database that several nodes share. Only the key of the root file counts.
    pub leases: Option<LeaseConfig>,
    /// Limits for finished jobs; a limit in `defaults` or of the agent overrides the same limit here. Without limits,
    /// all jobs are kept. The key of the root file also applies to agents that were removed from the fleet.
    pub retention: Option<Retention>,
    /// Providers by name, with limits that apply to all their agents together. Only the key of the root file counts.
    pub providers: Option<IndexMap<String, Provider>>,
    /// Prices by model name, for runtimes that report tokens but no costs. Only the key of the root file counts.
    pub prices: Option<Prices>,
    /// Spend limits of all agents together. Only the key of the root file counts.
    pub budget: Option<FleetBudget>,
    pub server: Option<ServerConfig>,
    pub traces: Option<TracesConfig>,
    /// Messages to people about incidents, for example failed jobs. Only the key of the root file counts.
    pub notify: Option<NotifyConfig>,
    #[schemars(extend("x-herdctl" = "webhooks arrive at `server`, and each schedule names its own secret"))]
    pub webhooks: Option<Webhooks>,
    /// herdctl's form of `server.listen`, and defaults for `web_chat`. Only the key of the root file counts.
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
    /// Name of the fleet. In a sub-fleet, it is the prefix of the names of agents; in the root file, claims of work
    /// items contain it.
    #[schemars(regex(pattern = "^[a-zA-Z0-9][a-zA-Z0-9_-]*$"), extend("format" = "name"))]
    pub name: Option<String>,
    pub description: Option<String>,
    /// Maximum number of jobs of the whole fleet that run at the same time, on all nodes; unset means no limit. Only the
    /// key of the root file counts.
    #[schemars(range(min = 1))]
    pub max_concurrent: Option<u32>,
}

/// Settings that agents and their schedules inherit, key by key.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Defaults {
    #[serde(flatten)]
    pub settings: InheritedSettings,
    #[serde(flatten)]
    pub timing: Timing,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FleetReference {
    /// Path of the other fleet's file, relative to the file that contains this key.
    #[schemars(length(min = 1))]
    pub path: String,
    /// Name of the fleet here; unset means its own `fleet.name`, or else the name of its directory.
    #[serde(default)]
    #[schemars(regex(pattern = "^[a-zA-Z0-9][a-zA-Z0-9_-]*$"), extend("format" = "name"))]
    pub name: Option<String>,
    /// Settings that override those of the other file.
    #[serde(default)]
    #[schemars(extend("x-partial" = true))]
    pub overrides: Option<Box<FleetFile>>,
}

/// An agent of the fleet: a file by `path`, or the agent itself.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("x-strict" = true))]
pub struct AgentEntry {
    /// Path of the agent's file, relative to the file that contains this key.
    #[schemars(length(min = 1))]
    pub path: Option<String>,
    /// Settings that override those of the agent.
    #[schemars(extend("x-partial" = true))]
    pub overrides: Option<Box<AgentConfig>>,
    #[serde(flatten)]
    pub agent: AgentConfig,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Webhooks {
    pub enabled: Option<bool>,
    #[schemars(range(min = 1))]
    pub port: Option<u16>,
    /// Environment variable that contains the secret.
    #[schemars(extend("format" = "variable"))]
    pub secret_env: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Web {
    pub enabled: Option<bool>,
    #[schemars(range(min = 1))]
    pub port: Option<u16>,
    /// Host to listen on: `localhost`, or an IP address of this machine.
    pub host: Option<String>,
    /// Default of `web_chat.session_expiry_hours`.
    #[schemars(range(min = 1))]
    pub session_expiry_hours: Option<u32>,
    #[schemars(extend("x-herdctl" = "no browser is opened"))]
    pub open_browser: Option<bool>,
    /// Default of `web_chat.tool_results`.
    pub tool_results: Option<bool>,
    /// Default of `web_chat.message_grouping`.
    pub message_grouping: Option<MessageGrouping>,
}

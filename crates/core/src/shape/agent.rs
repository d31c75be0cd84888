//! The keys of an agent: in its own file, in an entry of the fleet file, or in `overrides`.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Chat, Docker, HooksConfig, McpServerConfig, RuntimeName, ScheduleConfig, WorkSourceConfig};
use crate::breaker::Breaker;
use crate::budget::Budget;
use crate::followup::Followups;
use crate::interval::Interval;
use crate::lease::OnLostLease;
use crate::notification::AgentNotify;
use crate::permission::{PermissionMode, Permissions};
use crate::policy::{Retry, Timeout};
use crate::retention::Retention;
use crate::runtime::SettingSource;
use crate::sandbox::Sandbox;
use crate::session::SessionPolicy;
use crate::trust::Trust;
use crate::workspace::Isolation;

/// Settings of a fallback; an unset key keeps the value of the agent.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("x-strict" = true))]
pub struct Fallback {
    /// Runtime; with another runtime, the agent's `model` does not apply.
    pub runtime: Option<RuntimeName>,
    pub model: Option<String>,
    /// Provider; unset means the provider of the agent, or, with another `runtime`, the provider of that runtime.
    #[schemars(regex(pattern = "^[a-zA-Z0-9][a-zA-Z0-9_-]*$"), extend("format" = "name"))]
    pub provider: Option<String>,
    /// Program and arguments for `runtime: command` and `runtime: acp`.
    pub command: Option<Vec<String>>,
    /// Environment variables in addition to those of the agent, for example for another account.
    #[schemars(extend("x-secret" = true))]
    pub env: IndexMap<String, String>,
}

/// A configured way to run a coding agent.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("x-strict" = true))]
#[schemars(rename = "Agent")]
pub struct AgentConfig {
    #[schemars(regex(pattern = "^[a-zA-Z0-9][a-zA-Z0-9_-]*$"), extend("format" = "name"))]
    pub name: Option<String>,
    pub description: Option<String>,
    /// `owner/repo` for a `work_source` of type `github` that names none.
    pub repo: Option<String>,
    pub identity: Option<Identity>,
    pub system_prompt: Option<String>,
    /// Prompt of a job whose schedule has none.
    pub default_prompt: Option<String>,
    /// Schedules by name.
    pub schedules: IndexMap<String, ScheduleConfig>,
    /// How people talk to the agent in a chat.
    pub chat: Option<Chat>,
    /// Actions after the end of a job.
    pub hooks: Option<HooksConfig>,
    /// Account or model server that the agent shares with other agents; unset means the provider that all agents with
    /// the same runtime share.
    #[schemars(regex(pattern = "^[a-zA-Z0-9][a-zA-Z0-9_-]*$"), extend("format" = "name"))]
    pub provider: Option<String>,
    /// Settings for jobs that start while the provider is used up. The first fallback whose provider is not used up
    /// applies.
    pub fallback: Vec<Fallback>,
    /// Rules for follow-ups: how many the jobs of this agent may request, and which other agents may request jobs of
    /// this agent; unset means that there are no follow-ups.
    pub followups: Option<Followups>,
    /// Give its jobs the tools of the fleet (`report`, `work_item`, `ask_person`); unset means false. With
    /// `followups.max` or `permission_mode: ask`, its jobs always get them.
    pub fleet_tools: Option<bool>,
    /// File in the working directory in which the agent leaves metadata for its hooks; unset means `metadata.json`.
    pub metadata_file: Option<String>,
    pub setting_sources: Option<Vec<SettingSource>>,
    /// Kind of program that the agent is; unset means `claude`.
    pub runtime: Option<RuntimeName>,
    /// Program and arguments for `runtime: command` (which gets the prompt on stdin) and `runtime: acp`.
    #[schemars(length(min = 1))]
    pub command: Option<Vec<String>>,
    /// Environment variables of the agent's processes, in addition to those that every agent gets.
    #[schemars(extend("x-secret" = true))]
    pub env: IndexMap<String, String>,
    #[serde(flatten)]
    pub inherited: InheritedSettings,
}

// Keys of an agent that `defaults` of a fleet have, too. A comment with three slashes would become the description of
// both.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct InheritedSettings {
    /// Directory of the agent; unset means the directory of the file that defines it.
    #[schemars(extend("x-old-names" = ["workspace"]))]
    pub working_directory: Option<WorkingDirectory>,
    /// Isolation of each job: none (`shared`, the default), a git worktree, or a clone.
    pub isolation: Option<Isolation>,
    pub work_source: Option<WorkSourceConfig>,
    pub session: Option<SessionConfig>,
    pub mcp_servers: Option<IndexMap<String, McpServerConfig>>,
    /// Folders of plugins for Claude Code, relative to the directory of the agent.
    pub plugins: Option<Vec<PluginConfig>>,
    /// Restrictions on its processes; unset means none.
    pub sandbox: Option<Sandbox>,
    /// herdctl's form of `sandbox: docker`.
    pub docker: Option<Docker>,
    pub instances: Option<Instances>,
    /// Labels of the nodes that may run its jobs, `NAME` or `NAME=VALUE`; unset or an empty list means every node.
    #[schemars(inner(regex(
        pattern = "^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}(=[A-Za-z0-9][A-Za-z0-9._/-]{0,62})?$"
    )))]
    pub runs_on: Option<Vec<String>>,
    pub model: Option<String>,
    #[schemars(range(min = 1))]
    pub max_turns: Option<u32>,
    pub permission_mode: Option<PermissionMode>,
    /// Tools to allow, to ask about and to deny, with `permission_mode: ask`.
    pub permissions: Option<Permissions>,
    /// Time after which an unanswered ask is denied; unset means 1h.
    pub ask_timeout: Option<Interval>,
    /// Tools that the agent may use; unset or an empty list means all tools.
    pub tools: Option<Vec<String>>,
    pub allowed_tools: Option<Vec<String>>,
    pub denied_tools: Option<Vec<String>>,
    /// Send messages of the agent in parts while they are written; unset means false.
    pub partial_messages: Option<bool>,
    /// Names of variables in the daemon's environment to pass to the agent's processes.
    #[schemars(inner(regex(pattern = "^[A-Za-z_][A-Za-z0-9_]*$")))]
    pub pass_env: Option<Vec<String>>,
    pub retry: Option<Retry>,
    /// Maximum duration of one attempt, including its preparation; unset means 1h, 0 means no limit.
    pub timeout: Option<Timeout>,
    /// Maximum time without output of an attempt; unset means 15m, 0 means no limit.
    pub idle_timeout: Option<Timeout>,
    /// Action for an agent whose node cannot renew the lease of the job, for example because the database does not
    /// answer; unset means `pause`. It has no effect without `store`.
    pub on_lost_lease: Option<OnLostLease>,
    /// Limits for its finished jobs; unset keys are taken from `retention` of the fleet.
    pub retention: Option<Retention>,
    /// Spend limits of the agent; unset means that only the budget of the fleet applies.
    pub budget: Option<Budget>,
    /// Rules that report its incidents to people, in addition to the rules of the root file.
    pub notify: Option<AgentNotify>,
    /// Conditions under which its schedules pause themselves.
    pub breaker: Option<Breaker>,
    /// Authors on GitHub, in chats and of webhooks whose text may get into its prompts; unset means everybody.
    pub trust: Option<Trust>,
    /// Chat in the dashboard; everybody whose token may trigger the agent can use it.
    pub web_chat: Option<WebChatConfig>,
}

/// Chat with the agent in the dashboard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "WebChat", extend("x-strict" = true))]
pub struct WebChatConfig {
    /// Whether people can talk to the agent in the dashboard and with the API; unset means true.
    pub enabled: Option<bool>,
    /// Time after which an unused session of a conversation is not continued; unset means 24.
    #[schemars(range(min = 1))]
    pub session_expiry_hours: Option<u32>,
    /// Whether a conversation shows the results of tools; unset means true.
    pub tool_results: Option<bool>,
    /// Whether each use of a tool has its own line, or successive uses have one line together; unset means `separate`.
    pub message_grouping: Option<MessageGrouping>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MessageGrouping {
    Separate,
    Grouped,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(extend("x-short-for" = "root"))]
pub enum WorkingDirectory {
    Path(String),
    Repository(Repository),
}

/// A directory, and the keys with which herdctl fills it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Repository {
    #[schemars(length(min = 1))]
    pub root: String,
    #[serde(default)]
    #[schemars(extend("x-herdctl" = "nothing is cloned"))]
    pub auto_clone: Option<bool>,
    #[serde(default)]
    #[schemars(range(min = 1), extend("x-herdctl" = "nothing is cloned"))]
    pub clone_depth: Option<u32>,
    #[serde(default)]
    #[schemars(extend("x-herdctl" = "nothing is cloned"))]
    pub default_branch: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Identity {
    pub name: Option<String>,
    #[schemars(extend("x-herdctl" = "write it in `system_prompt`"))]
    pub role: Option<String>,
    #[schemars(extend("x-herdctl" = "write it in `system_prompt`"))]
    pub personality: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Instances {
    /// Maximum number of jobs of the agent that run at the same time; unset means 1.
    #[schemars(range(min = 1))]
    pub max_concurrent: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Session")]
pub struct SessionConfig {
    /// Which jobs share one session; unset means `fresh`: each job starts a new session.
    pub policy: Option<SessionPolicy>,
    #[schemars(range(min = 1))]
    pub max_turns: Option<u32>,
    /// Time after which an unused session is not continued; unset means 24h.
    #[schemars(regex(pattern = r"^\d+(\.\d+)?(s|m|h|d|w)$"), extend("examples" = ["24h", "2w"], "x-aliases" = ["timeout"]))]
    pub expires: Option<String>,
    #[schemars(extend("x-herdctl" = "`model` of the agent decides"))]
    pub model: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "Plugin")]
pub enum PluginConfig {
    Path(String),
    Local {
        #[serde(rename = "type")]
        kind: PluginKind,
        #[schemars(length(min = 1))]
        path: String,
        #[serde(default, rename = "skipMcpDiscovery")]
        skip_mcp_discovery: Option<bool>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PluginKind {
    Local,
}

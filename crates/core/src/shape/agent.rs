//! An agent: its own file, an entry of the fleet file, or what `overrides` lays over it.

use indexmap::IndexMap;
use jiff::SignedDuration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Chat, Docker, Hooks, McpServer, Runtime, Schedule, WorkSource};
use crate::breaker::Breaker;
use crate::budget::Budget;
use crate::followup::Followups;
use crate::interval::Interval;
use crate::permission::Permissions;
use crate::policy::{Retry, Timeout};
use crate::retention::Retention;
use crate::sandbox::Sandbox;
use crate::session::{self, SessionPolicy};
use crate::trust::Trust;
use crate::workspace::Isolation;

/// What else an agent can be: what is unset stays as the agent says.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("x-strict" = true))]
pub struct Fallback {
    /// With another runtime, the agent's `model` does not count.
    pub runtime: Option<Runtime>,
    pub model: Option<String>,
    /// Unset means that of the runtime, if that is another one.
    #[schemars(regex(pattern = "^[a-zA-Z0-9][a-zA-Z0-9_-]*$"), extend("format" = "name"))]
    pub provider: Option<String>,
    /// Of `runtime: command`.
    pub command: Option<Vec<String>>,
    /// Another account, for example.
    #[schemars(extend("x-secret" = true))]
    pub env: IndexMap<String, String>,
}

/// A configured way to run a coding agent.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("x-strict" = true))]
pub struct Agent {
    #[schemars(regex(pattern = "^[a-zA-Z0-9][a-zA-Z0-9_-]*$"), extend("format" = "name"))]
    pub name: Option<String>,
    pub description: Option<String>,
    /// Where the agent works; unset means the directory of the file that defines it.
    #[schemars(extend("x-old-names" = ["workspace"]))]
    pub working_directory: Option<WorkingDirectory>,
    /// What each job has to itself: nothing (`shared`, if unset), a git worktree, or a clone.
    pub isolation: Option<Isolation>,
    /// `owner/repo` of a `work_source` of type `github` that names none.
    pub repo: Option<String>,
    pub identity: Option<Identity>,
    pub system_prompt: Option<String>,
    /// The prompt of a run whose schedule has none.
    pub default_prompt: Option<String>,
    pub work_source: Option<WorkSource>,
    /// By name.
    pub schedules: IndexMap<String, Schedule>,
    pub session: Option<Session>,
    pub mcp_servers: IndexMap<String, McpServer>,
    /// Folders of plugins for Claude Code, relative to where the agent works.
    pub plugins: Option<Vec<Plugin>>,
    #[schemars(extend("x-pending" = "chat is not connected yet"))]
    pub chat: Option<Chat>,
    /// What is done after a job has ended.
    pub hooks: Option<Hooks>,
    /// What its processes may reach; unset means everything.
    pub sandbox: Option<Sandbox>,
    /// herdctl's way to say `sandbox: docker`.
    pub docker: Option<Docker>,
    pub instances: Option<Instances>,
    /// The account or server of models that it shares with others; unset means all agents with the same runtime.
    #[schemars(regex(pattern = "^[a-zA-Z0-9][a-zA-Z0-9_-]*$"), extend("format" = "name"))]
    pub provider: Option<String>,
    /// With what a job starts while the provider is used up: the first of these whose own is not.
    pub fallback: Vec<Fallback>,
    pub model: Option<String>,
    #[schemars(range(min = 1))]
    pub max_turns: Option<u32>,
    pub permission_mode: Option<PermissionMode>,
    /// Which tools are used without asking, which are asked for and which are never used, with `permission_mode: ask`.
    pub permissions: Option<Permissions>,
    /// How long an agent waits for a person's answer, which is then no; unset means 1h.
    pub ask_timeout: Option<Interval>,
    /// Whether its jobs may ask for further jobs, and who else may ask for its own; unset means that nobody may.
    pub followups: Option<Followups>,
    /// Whether its jobs get the tools of the fleet (`report`, `work_item`, `ask_person`); with `permission_mode: ask`
    /// or `followups.max` they do in any case. Unset means false.
    pub fleet_tools: Option<bool>,
    pub tools: Option<Vec<String>>,
    pub allowed_tools: Option<Vec<String>>,
    pub denied_tools: Option<Vec<String>>,
    /// Where the agent leaves facts for its hooks, in the directory it works in; unset means `metadata.json`.
    pub metadata_file: Option<String>,
    pub setting_sources: Option<Vec<SettingSource>>,
    /// Whether what the agent says is told piece by piece while it is being said; unset means false.
    pub partial_messages: Option<bool>,
    /// How the agent is started; unset means `claude`.
    pub runtime: Option<Runtime>,
    /// The program and its arguments, of `runtime: command` (the prompt comes on its stdin) and of `runtime: acp`.
    #[schemars(length(min = 1))]
    pub command: Option<Vec<String>>,
    /// Variables for the agent's processes, beside those that every agent gets.
    #[schemars(extend("x-secret" = true))]
    pub env: IndexMap<String, String>,
    /// Names of variables of the daemon's environment that the agent's processes also get.
    #[schemars(inner(regex(pattern = "^[A-Za-z_][A-Za-z0-9_]*$")))]
    pub pass_env: Option<Vec<String>>,
    pub retry: Option<Retry>,
    /// The longest that one attempt may take; unset means 1h, 0 means for ever.
    pub timeout: Option<Timeout>,
    /// The longest that an attempt may be silent; unset means 15m, 0 means for ever.
    pub idle_timeout: Option<Timeout>,
    /// What is kept of its finished jobs; unset means everything.
    pub retention: Option<Retention>,
    /// What it may spend; unset means as much as the fleet may.
    pub budget: Option<Budget>,
    /// When its schedules pause themselves.
    pub breaker: Option<Breaker>,
    /// Who may put words into its prompts, from GitHub, chats and webhooks; unset means everybody.
    pub trust: Option<Trust>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum WorkingDirectory {
    Path(String),
    Repository(Repository),
}

/// A directory, and how herdctl meant to fill it.
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
    #[schemars(extend("x-herdctl" = "say it in `system_prompt`"))]
    pub role: Option<String>,
    #[schemars(extend("x-herdctl" = "say it in `system_prompt`"))]
    pub personality: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Instances {
    /// How many jobs of the agent may run at once; unset means 1.
    #[schemars(range(min = 1))]
    pub max_concurrent: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Session {
    /// Which jobs share one conversation; unset means `fresh`, none.
    pub policy: Option<SessionPolicy>,
    #[schemars(range(min = 1))]
    pub max_turns: Option<u32>,
    /// How long a session may rest before the next job goes on with it; unset means 24h.
    #[schemars(regex(pattern = r"^\d+(\.\d+)?(s|m|h|d|w)$"), extend("examples" = ["24h", "2w"], "x-aliases" = ["timeout"]))]
    pub expires: Option<String>,
    #[schemars(extend("x-herdctl" = "`model` of the agent decides"))]
    pub model: Option<String>,
}

impl Session {
    pub fn expires(&self) -> SignedDuration {
        self.expires.as_deref().and_then(session::expiry).unwrap_or(session::EXPIRES)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Plugin {
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum PermissionMode {
    Default,
    AcceptEdits,
    BypassPermissions,
    Plan,
    Delegate,
    DontAsk,
    // `permissions` decide, and what they leave open a person decides.
    Ask,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SettingSource {
    User,
    Project,
    Local,
}

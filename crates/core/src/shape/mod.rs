//! The config as it is written in YAML, section by section. Only [`crate::config`] reads it; the other modules get the
//! resolved fleet, [`crate::roster`].
//!
//! The JSON Schema that editors read and that our own checker enforces is generated from these types. Extensions
//! express what a plain schema cannot:
//!
//! - `x-aliases`: other names of the key; `x-old-names`: the same, with a warning.
//! - `x-secret`: never shown; on a map, none of its values is shown.
//! - `x-address`: an address, which may contain a password even if it is mistyped; `format` of `uri` means the same.
//! - `x-path`: a path, relative to the file that names it; the loader resolves it.
//! - `x-herdctl`: accepted because herdctl accepts it; it has no effect here.
//! - `x-partial`: below here any key may be missing, because a merge may add it.
//! - `x-fleet-only`: not allowed in an agent's own file.
//! - `x-short-for`: a value that is not a map is short for a map with only this key.
//! - `x-strict`: an unknown key here is an error in a herdctl fleet too, as it is in herdctl.

mod agent;
mod chat;
mod docker;
mod fleet;
mod hooks;
mod mcp;
mod notify;
mod runtime;
mod schedule;
mod work_source;

pub use agent::{
    AgentConfig, Fallback, Identity, InheritedSettings, Instances, MessageGrouping, PluginConfig, PluginKind,
    Repository, SessionConfig, WebChatConfig, WorkingDirectory,
};
pub use chat::{
    ActivityType, AssistantMessages, Attachments, Channel, Chat, ChatMode, ChatOutputConfig,
    CommandRegistration, CommandScope, DirectMessages, Discord, Guild, LogLevel, PlatformOptions, Presence,
    Skill, Slack, Voice,
};
pub use docker::{Docker, DockerNetwork, WorkspaceMode};
pub use fleet::{AgentEntry, Defaults, FleetFile, FleetInfo, FleetReference, Web, Webhooks};
pub use hooks::{HookActionConfig, HookConfig, HooksConfig};
pub use mcp::McpServerConfig;
pub use notify::{NotifyActionConfig, NotifyConfig, NotifyTargetConfig};
pub use runtime::RuntimeName;
pub use schedule::ScheduleConfig;
pub use work_source::{IssueLabelsConfig, WorkSourceConfig};

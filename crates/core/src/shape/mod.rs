//! The YAML as written, section by section.
//!
//! These types are the contract: the JSON Schema that editors read and that our own checker enforces is generated
//! from them. What a plain schema cannot say stands in extensions:
//!
//! - `x-aliases`: other names of the key; `x-old-names`: the same, answered with a warning.
//! - `x-secret`: never shown; on a map, none of its values is.
//! - `x-pending`: accepted, does nothing yet, and the warning says so.
//! - `x-herdctl`: accepted because herdctl does, and has no meaning here.
//! - `x-partial`: below here any key may be missing, because a merge may still bring it.
//! - `x-fleet-only`: may not stand in an agent's own file.
//! - `x-strict`: an unknown key here is an error in a herdctl fleet too, as it is there.

mod agent;
mod chat;
mod docker;
mod fleet;
mod hooks;
mod mcp;
mod runtime;
mod schedule;
mod traces;
mod work_source;

pub use agent::{
    Agent, Fallback, Identity, Instances, PermissionMode, Plugin, PluginKind, Repository, Session,
    SettingSource, WorkingDirectory,
};
pub use chat::{Chat, Discord, Slack};
pub use docker::{DEFAULT_IMAGE, Docker};
pub use fleet::{AgentEntry, Defaults, FleetFile, FleetInfo, FleetReference, MessageGrouping, Web, Webhooks};
pub use hooks::{Hook, HookAction, HookEvent, HookMethod, Hooks};
pub use mcp::{McpServer, McpTransport};
pub use runtime::Runtime;
pub use schedule::Schedule;
pub use traces::Traces;
pub use work_source::{Labels, WorkSource};

//! The key `runtime`: the names of runtimes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::runtime::Runtime;

/// Kind of program; `acp` is any program that supports the Agent Client Protocol, `sdk` and `cli` are herdctl's names
/// of `claude`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Runtime")]
pub enum RuntimeName {
    Claude,
    Codex,
    Gemini,
    Opencode,
    Acp,
    Command,
    Sdk,
    Cli,
}

impl From<RuntimeName> for Runtime {
    fn from(name: RuntimeName) -> Self {
        match name {
            RuntimeName::Claude | RuntimeName::Sdk | RuntimeName::Cli => Self::Claude,
            RuntimeName::Codex => Self::Codex,
            RuntimeName::Gemini => Self::Gemini,
            RuntimeName::Opencode => Self::Opencode,
            RuntimeName::Acp => Self::Acp,
            RuntimeName::Command => Self::Command,
        }
    }
}

//! The runtimes, the keys of an agent that each of them does not use, and the settings that only Claude Code has.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Kind of program; `acp` is any program that supports the Agent Client Protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Runtime {
    #[default]
    Claude,
    Codex,
    Gemini,
    Opencode,
    Acp,
    Command,
}

/// Settings that only Claude Code has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClaudeSettings {
    /// Plugins to load.
    pub plugins: Vec<Plugin>,
    /// Settings files to read; none means that the program decides.
    pub setting_sources: Option<Vec<SettingSource>>,
    /// True if messages are sent in parts while they are written.
    pub partial_messages: bool,
}

/// A plugin for Claude Code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plugin {
    /// Folder, relative to the directory of the agent.
    pub path: String,
    /// True if its MCP servers are not used.
    pub skip_mcp_discovery: bool,
}

// A settings file of Claude Code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SettingSource {
    User,
    Project,
    Local,
}

impl Runtime {
    pub const ALL: [Self; 6] =
        [Self::Claude, Self::Codex, Self::Gemini, Self::Opencode, Self::Acp, Self::Command];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Opencode => "opencode",
            Self::Acp => "acp",
            Self::Command => "command",
        }
    }

    /// Returns the default provider of its program; none for `acp` and `command`, whose provider is not known.
    pub const fn provider(self) -> Option<&'static str> {
        match self {
            Self::Acp | Self::Command => None,
            Self::Claude | Self::Codex | Self::Gemini | Self::Opencode => Some(self.name()),
        }
    }

    /// Returns the runtime with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|runtime| runtime.name() == name)
    }

    /// Checks whether its program asks before it uses a tool.
    pub const fn asks(self) -> bool {
        match self {
            Self::Claude | Self::Acp => true,
            Self::Codex | Self::Gemini | Self::Opencode | Self::Command => false,
        }
    }

    /// Checks whether its program reports the usage windows of its account.
    pub const fn reports_windows(self) -> bool {
        match self {
            Self::Claude | Self::Codex => true,
            Self::Gemini | Self::Opencode | Self::Acp | Self::Command => false,
        }
    }

    /// Checks whether the system prompt is an argument of its program, which other users of the machine can read.
    pub const fn has_prompt_in_argument(self) -> bool {
        match self {
            Self::Codex => true,
            Self::Claude | Self::Gemini | Self::Opencode | Self::Acp | Self::Command => false,
        }
    }

    /// Checks whether its program uses a tool of an MCP server only with permission.
    pub const fn needs_permission_for_servers(self) -> bool {
        match self {
            Self::Claude => true,
            Self::Codex | Self::Gemini | Self::Opencode | Self::Acp | Self::Command => false,
        }
    }

    /// Returns the keys of an agent that are not passed to its program, with the reasons.
    pub const fn unused(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Claude => &[],
            Self::Codex => &UNUSED_BY_CODEX,
            Self::Gemini => &UNUSED_BY_GEMINI,
            Self::Opencode => &UNUSED_BY_OPENCODE,
            Self::Acp => &UNUSED_BY_ACP,
            Self::Command => &UNUSED_BY_COMMAND,
        }
    }
}

const UNUSED_BY_CODEX: [(&str, &str); 6] = [
    ("max_turns", "Codex has no limit of turns; `timeout` ends the job"),
    ("session.max_turns", "Codex has no limit of turns; `timeout` ends the job"),
    ("allowed_tools", "Codex does not choose among tools; `permission_mode` chooses its sandbox"),
    ("setting_sources", "Codex always reads its own config"),
    ("partial_messages", "Codex reports only whole messages"),
    ("plugins", "they are folders for Claude Code"),
];

const UNUSED_BY_GEMINI: [(&str, &str); 6] = [
    ("max_turns", "the Gemini CLI takes it only from its own settings; `timeout` ends the job"),
    ("session.max_turns", "the Gemini CLI takes it only from its own settings; `timeout` ends the job"),
    ("mcp_servers", "the Gemini CLI takes them only from its own settings"),
    ("setting_sources", "the Gemini CLI always reads its own settings"),
    ("partial_messages", "the Gemini CLI always reports them"),
    ("plugins", "they are folders for Claude Code"),
];

const UNUSED_BY_OPENCODE: [(&str, &str); 3] = [
    ("setting_sources", "OpenCode always reads its own config"),
    ("partial_messages", "OpenCode reports only whole messages"),
    ("plugins", "they are folders for Claude Code"),
];

const NOT_IN_PROTOCOL: &str =
    "the Agent Client Protocol does not contain it; set it in the agent's own settings, if they have it";

const UNUSED_BY_ACP: [(&str, &str); 6] = [
    ("max_turns", "the Agent Client Protocol has no limit of turns; `timeout` ends the job"),
    ("session.max_turns", "the Agent Client Protocol has no limit of turns; `timeout` ends the job"),
    ("partial_messages", "the chunks of a message are joined, and reported as a whole"),
    ("system_prompt", NOT_IN_PROTOCOL),
    ("setting_sources", NOT_IN_PROTOCOL),
    ("plugins", "they are folders for Claude Code"),
];

const SET_BY_ARGUMENTS: &str = "set it with the arguments of the command";

const UNUSED_BY_COMMAND: [(&str, &str); 11] = [
    ("model", SET_BY_ARGUMENTS),
    ("max_turns", SET_BY_ARGUMENTS),
    ("session.max_turns", SET_BY_ARGUMENTS),
    ("session.policy", "a command has no session"),
    ("permission_mode", "a command does not support permission modes"),
    ("allowed_tools", SET_BY_ARGUMENTS),
    ("system_prompt", SET_BY_ARGUMENTS),
    ("setting_sources", SET_BY_ARGUMENTS),
    ("partial_messages", SET_BY_ARGUMENTS),
    ("mcp_servers", SET_BY_ARGUMENTS),
    ("plugins", SET_BY_ARGUMENTS),
];

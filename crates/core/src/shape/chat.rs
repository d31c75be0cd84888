//! The keys of `chat`: how people talk to an agent in a chat. The keys are accepted, but chat is not connected yet.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Chat {
    pub discord: Option<Discord>,
    pub slack: Option<Slack>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Discord {
    /// Environment variable that contains the bot's token.
    #[schemars(length(min = 1))]
    pub bot_token_env: String,
    pub guilds: Vec<Guild>,
    #[serde(flatten)]
    pub options: DiscordOptions,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DiscordOptions {
    #[schemars(range(min = 1))]
    pub session_expiry_hours: Option<u32>,
    pub log_level: Option<LogLevel>,
    pub output: Option<DiscordOutput>,
    pub presence: Option<Presence>,
    pub dm: Option<DirectMessages>,
    pub voice: Option<Voice>,
    pub attachments: Option<Attachments>,
    pub command_registration: Option<CommandRegistration>,
    pub skills: Option<Vec<Skill>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Slack {
    pub channels: Vec<Channel>,
    #[serde(flatten)]
    pub options: SlackOptions,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SlackOptions {
    /// Environment variable that contains the bot's token; unset means `SLACK_BOT_TOKEN`.
    pub bot_token_env: Option<String>,
    /// Environment variable that contains the app's token; unset means `SLACK_APP_TOKEN`.
    pub app_token_env: Option<String>,
    #[schemars(range(min = 1))]
    pub session_expiry_hours: Option<u32>,
    pub log_level: Option<LogLevel>,
    pub dm: Option<DirectMessages>,
    pub output: Option<ChatOutput>,
}

/// Parts of a job's output that are shown in the chat.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Output")]
pub struct ChatOutput {
    pub tool_results: Option<bool>,
    #[schemars(range(min = 1, max = 1000))]
    pub tool_result_max_length: Option<u32>,
    pub system_status: Option<bool>,
    pub errors: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DiscordOutput {
    #[serde(flatten)]
    pub output: ChatOutput,
    pub result_summary: Option<bool>,
    pub typing_indicator: Option<bool>,
    pub acknowledge_emoji: Option<String>,
    pub assistant_messages: Option<AssistantMessages>,
    pub progress_indicator: Option<bool>,
}

/// Status that Discord shows for the bot.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Presence {
    pub activity_type: Option<String>,
    pub activity_message: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Guild {
    #[schemars(length(min = 1))]
    pub id: String,
    #[serde(default)]
    pub channels: Option<Vec<Channel>>,
    #[serde(default)]
    pub default_channel_mode: Option<ChatMode>,
    #[serde(default)]
    pub dm: Option<DirectMessages>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Channel {
    #[schemars(length(min = 1))]
    pub id: String,
    #[serde(default)]
    pub name: Option<String>,
    /// Messages to answer; unset means the `default_channel_mode` of the guild, else `mention`.
    #[serde(default)]
    pub mode: Option<ChatMode>,
    #[serde(default)]
    pub context_messages: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DirectMessages {
    pub enabled: Option<bool>,
    pub mode: Option<ChatMode>,
    pub allowlist: Option<Vec<String>>,
    pub blocklist: Option<Vec<String>>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Voice {
    pub enabled: Option<bool>,
    /// Speech service, which is not a provider of agents.
    pub provider: Option<String>,
    /// Environment variable that contains the key.
    pub api_key_env: Option<String>,
    pub model: Option<String>,
    pub language: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Attachments {
    pub enabled: Option<bool>,
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub max_file_size_mb: Option<f64>,
    #[schemars(range(min = 1))]
    pub max_files_per_message: Option<u32>,
    pub allowed_types: Option<Vec<String>>,
    pub download_dir: Option<String>,
    pub cleanup_after_processing: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CommandRegistration {
    pub scope: Option<CommandScope>,
    pub guild_id: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Skill {
    #[schemars(length(min = 1))]
    pub name: String,
    #[serde(default)]
    pub description: Option<String>,
}

macro_rules! word_enums {
    ($($name:ident { $($variant:ident),+ })+) => {$(
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum $name { $($variant),+ }
    )+};
}
word_enums! {
    LogLevel { Minimal, Standard, Verbose }
    AssistantMessages { Answers, All }
    ChatMode { Mention, Auto }
    CommandScope { Global, Guild }
}

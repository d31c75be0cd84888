//! The keys of `chat`: how people talk to an agent in a chat.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::interval::Interval;

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Chat {
    pub discord: Option<Discord>,
    pub slack: Option<Slack>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Discord {
    /// Environment variable that contains the bot's token.
    #[schemars(length(min = 1), extend("format" = "variable"))]
    pub bot_token_env: String,
    /// Guilds with the channels in which the agent answers.
    #[serde(default)]
    pub guilds: Vec<Guild>,
    /// Status that Discord shows for the bot.
    #[serde(default)]
    pub presence: Option<Presence>,
    /// Guilds in which the slash commands are registered; unset means all guilds.
    #[serde(default)]
    pub command_registration: Option<CommandRegistration>,
    /// Ids of roles whose members may talk to the agent.
    #[serde(default)]
    pub roles: Vec<String>,
    #[serde(flatten)]
    pub options: PlatformOptions,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Slack {
    /// Environment variable that contains the bot's token; unset means `SLACK_BOT_TOKEN`.
    #[schemars(length(min = 1), extend("format" = "variable"))]
    pub bot_token_env: Option<String>,
    /// Environment variable that contains the app's token; unset means `SLACK_APP_TOKEN`.
    #[schemars(length(min = 1), extend("format" = "variable"))]
    pub app_token_env: Option<String>,
    /// Channels in which the agent answers.
    pub channels: Vec<Channel>,
    #[serde(flatten)]
    pub options: PlatformOptions,
}

// The keys that both platforms have. A comment with three slashes would become the description of both.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PlatformOptions {
    /// Address of the platform's API, for a proxy; unset means the platform's own.
    #[schemars(regex(pattern = "^https?://"))]
    pub api_url: Option<String>,
    /// Let everybody who can write in a configured channel talk to the agent there; unset means false, and in a
    /// `herdctl.yaml` that lists nobody true. For direct messages, see `everyone` of `dm`.
    pub everyone: Option<bool>,
    /// Ids of users who may talk to the agent.
    pub users: Vec<String>,
    /// Ids of users and roles who may talk to the agent, stop its jobs, use schedule commands and answer its asks.
    pub operators: Vec<String>,
    /// Ids of bots whose messages start jobs; messages of other bots are ignored.
    pub bots: Vec<String>,
    /// Maximum number of messages of one user in a period; unset means no limit.
    pub rate: Option<MessageRateConfig>,
    /// Spend limit for the jobs of one user; unset means no limit.
    pub budget: Option<ChatBudget>,
    /// Hours after which an unused session of a conversation is not continued; unset means 24.
    #[schemars(range(min = 1))]
    pub session_expiry_hours: Option<u32>,
    /// How much the message with the progress shows; unset means `standard`.
    pub log_level: Option<LogLevel>,
    pub output: Option<ChatOutputConfig>,
    pub dm: Option<DirectMessages>,
    pub voice: Option<Voice>,
    pub attachments: Option<Attachments>,
    /// Skills for the command `skill`; unset means those in the directory of the agent.
    pub skills: Option<Vec<Skill>>,
}

impl PlatformOptions {
    /// Checks whether a list names somebody who may talk to the agent.
    pub const fn lists_somebody(&self) -> bool {
        !self.users.is_empty() || !self.operators.is_empty() || !self.bots.is_empty()
    }
}

/// Maximum number of messages in a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "MessageRate")]
pub struct MessageRateConfig {
    #[schemars(range(min = 1))]
    pub messages: u32,
    pub per: Interval,
}

#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ChatBudget {
    /// Maximum cost in dollars of the jobs of one user in one day.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub per_user_per_day_usd: Option<f64>,
}

/// Parts of a job's output that are shown in the chat.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Output")]
pub struct ChatOutputConfig {
    /// Show results of tools; unset means true.
    pub tool_results: Option<bool>,
    /// Maximum length of a tool result that is shown without a file; unset means 900.
    #[schemars(range(min = 1, max = 1000))]
    pub tool_result_max_length: Option<u32>,
    /// Show messages of the program about itself; unset means true.
    pub system_status: Option<bool>,
    /// Show errors that the agent reports; unset means true.
    pub errors: Option<bool>,
    /// Show duration, turns, cost and tokens after the answer; unset means false.
    pub result_summary: Option<bool>,
    /// Show on Discord that the bot is typing while the job runs; unset means true.
    pub typing_indicator: Option<bool>,
    /// Reaction that acknowledges a message; an empty text means no reaction. Unset means 👀 on Discord and
    /// `hourglass_flowing_sand` on Slack.
    pub acknowledge_emoji: Option<String>,
    /// Messages of the agent that are posted: those of turns without tool calls, or all; unset means `answers`.
    pub assistant_messages: Option<AssistantMessages>,
    /// Show a message with the progress, which is edited in place; unset means true.
    pub progress_indicator: Option<bool>,
}

/// Status that Discord shows for the bot. Both keys are needed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Presence {
    pub activity_type: Option<ActivityType>,
    pub activity_message: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Guild {
    #[schemars(length(min = 1))]
    pub id: String,
    #[serde(default)]
    pub channels: Option<Vec<Channel>>,
    /// Messages to answer in channels that are not listed; unset means none.
    #[serde(default)]
    pub default_channel_mode: Option<ChatMode>,
    /// Direct messages, if there is no `dm` beside `guilds`. The first guild with this key counts.
    #[serde(default)]
    pub dm: Option<DirectMessages>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Channel {
    #[schemars(length(min = 1))]
    pub id: String,
    /// Name for people who read the config.
    #[serde(default)]
    pub name: Option<String>,
    /// Messages to answer; unset means `mention`.
    #[serde(default)]
    pub mode: Option<ChatMode>,
    /// Number of earlier messages that the prompt contains if no session continues; unset means 10.
    #[serde(default)]
    pub context_messages: Option<u32>,
}

/// Direct messages that the agent answers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DirectMessages {
    /// Answer direct messages; unset means true.
    pub enabled: Option<bool>,
    /// Messages to answer; unset means `auto`.
    pub mode: Option<ChatMode>,
    /// Let everybody send direct messages; unset means false, and in a `herdctl.yaml` in which everybody may talk to the
    /// agent true. On Discord, everybody can write to a bot that is in one of their servers, and can add a public bot to
    /// a server of their own.
    pub everyone: Option<bool>,
    /// Ids of users who may send direct messages; unset or empty means that nobody is excluded.
    pub allowlist: Option<Vec<String>>,
    /// Ids of users who may not send direct messages, even if they are on the allowlist.
    pub blocklist: Option<Vec<String>>,
}

/// Transcription of voice messages.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Voice {
    /// Transcribe voice messages; unset means false.
    pub enabled: Option<bool>,
    /// Speech service, which is not a provider of agents.
    pub provider: Option<SpeechProvider>,
    /// Environment variable that contains the key; unset means `OPENAI_API_KEY`.
    #[schemars(length(min = 1), extend("format" = "variable"))]
    pub api_key_env: Option<String>,
    /// Model of the service; unset means `whisper-1`.
    pub model: Option<String>,
    /// Language of the messages, for example `en`; unset means that the service finds it out.
    pub language: Option<String>,
    /// Address of a service with the API of `OpenAI`; unset means the address of `OpenAI`.
    #[schemars(regex(pattern = "^https?://"))]
    pub api_url: Option<String>,
}

/// Files that people send.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Attachments {
    /// Give files that people send to the agent; unset means false.
    pub enabled: Option<bool>,
    /// Maximum size of a file in MiB; unset means 10.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub max_file_size_mb: Option<f64>,
    /// Maximum number of files of one message; unset means 5.
    #[schemars(range(min = 1))]
    pub max_files_per_message: Option<u32>,
    /// Media types to accept; unset means `image/*`, `application/pdf` and `text/*`.
    pub allowed_types: Option<Vec<String>>,
    /// Folder in the working directory; unset means `.discord-attachments` or `.slack-attachments`.
    #[schemars(length(min = 1))]
    pub download_dir: Option<String>,
    /// Remove the files after each attempt; unset means true.
    pub cleanup_after_processing: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CommandRegistration {
    pub scope: Option<CommandScope>,
    /// Guild for `scope: guild`.
    pub guild_id: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
    ActivityType { Playing, Watching, Listening, Competing, Custom }
    SpeechProvider { Openai }
}

//! Chat settings of an agent, with their defaults applied.

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

use super::ChatPlatform;

/// Chat settings of an agent.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AgentChat {
    /// At most one entry for each platform.
    pub platforms: Vec<PlatformChat>,
}

/// How people talk to an agent on one platform.
#[derive(Debug, Clone, PartialEq)]
pub struct PlatformChat {
    pub platform: ChatPlatform,
    pub bot: BotConfig,
    pub access: ChatAccess,
    /// Channels in which the agent answers.
    pub channels: Vec<ChatChannel>,
    /// Guilds on Discord, with the mode of channels that are not listed.
    pub guilds: Vec<ChatGuild>,
    /// True if every message in a thread of a channel counts as a mention, as on Slack with herdctl. Otherwise this is
    /// so only in threads in which the agent has answered.
    pub answers_every_thread: bool,
    pub direct: DirectRules,
    /// Time after which an unused session of a conversation is not continued.
    pub session_expires: SignedDuration,
    pub output: ChatOutput,
    /// Rules for attachments; none if the agent gets no attachments.
    pub attachments: Option<AttachmentRules>,
    /// Service for voice messages; none if voice messages are not transcribed.
    pub voice: Option<VoiceService>,
    /// Skills for the command `skill`; none means the skills in the agent's directory.
    pub skills: Option<Vec<ChatSkill>>,
}

/// Connection of a bot. Agents with the same connection share the bot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BotConfig {
    /// Environment variable that contains the bot's token.
    pub token_env: String,
    /// Environment variable that contains the app's token; only for Slack.
    pub app_token_env: Option<String>,
    /// Address of the platform's API; none means the platform's own address.
    pub api_url: Option<String>,
    /// Status that the platform shows for the bot: its kind (`playing`, `watching`, …) and its text.
    pub presence: Option<(ActivityKind, String)>,
    /// Guild in which slash commands are registered; none means all guilds.
    pub command_guild: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActivityKind {
    Playing,
    Watching,
    Listening,
    Competing,
    Custom,
}

/// People who may talk to the agent, and their limits.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ChatAccess {
    /// True if everybody who can write in a configured channel may talk to the agent there.
    pub everyone: bool,
    /// Ids of users who may talk to the agent.
    pub users: Vec<String>,
    /// Ids of roles on Discord whose members may talk to the agent.
    pub roles: Vec<String>,
    /// Ids of users and roles who may talk to the agent, stop the jobs of others, use schedule commands and answer
    /// asks.
    pub operators: Vec<String>,
    /// Ids of bots whose messages start jobs.
    pub bots: Vec<String>,
    /// Maximum number of messages of one user in a period.
    pub rate: Option<MessageRate>,
    /// Maximum cost of the jobs of one user in one day.
    pub per_user_per_day_usd: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MessageRate {
    pub messages: u32,
    pub period: SignedDuration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatChannel {
    /// Guild on Discord; none on Slack.
    pub guild: Option<String>,
    pub id: String,
    pub mode: AnswerMode,
    /// Number of earlier messages that the prompt contains.
    pub context_messages: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatGuild {
    pub id: String,
    /// Mode of channels that are not listed; none means that they are ignored.
    pub default_mode: Option<AnswerMode>,
}

/// Messages of a channel that the agent answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerMode {
    /// Messages that mention the bot.
    Mention,
    /// All messages.
    Auto,
}

/// Rules for direct messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectRules {
    pub enabled: bool,
    pub mode: AnswerMode,
    /// True if everybody who can write to the bot may talk to the agent.
    pub everyone: bool,
    /// Ids of the only users who may write to the bot. An empty list excludes nobody.
    pub allowlist: Vec<String>,
    /// Ids of users who may not write to the bot, even if they are on the allowlist.
    pub blocklist: Vec<String>,
    pub context_messages: u32,
}

/// Parts of a job's output that are posted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is a key of herdctl")]
pub struct ChatOutput {
    pub tool_results: bool,
    /// Maximum length of a tool result that is posted without a file.
    pub tool_result_max_length: usize,
    pub system_status: bool,
    pub errors: bool,
    /// True if duration, turns, cost and tokens are posted after the answer.
    pub result_summary: bool,
    pub typing_indicator: bool,
    /// Reaction that acknowledges a message; none for no reaction.
    pub acknowledge_emoji: Option<String>,
    pub assistant_messages: PostedMessages,
    /// True if a message shows the progress. The message is edited in place.
    pub progress_indicator: bool,
    pub detail: OutputDetail,
}

/// Messages of the agent that are posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PostedMessages {
    /// Messages of turns without tool calls.
    Answers,
    /// Messages of all turns.
    All,
}

/// `log_level` of herdctl: how much the progress message shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputDetail {
    Minimal,
    Standard,
    Verbose,
}

#[derive(Debug, Clone, PartialEq)]
pub struct AttachmentRules {
    pub max_file_bytes: u64,
    pub max_files: u32,
    /// Media types, for example `image/*`.
    pub allowed_types: Vec<String>,
    /// Folder in the working directory of the job.
    pub folder: String,
    /// True if the files are removed after each attempt.
    pub removed_after_job: bool,
}

/// Service that transcribes voice messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VoiceService {
    pub key_env: String,
    pub model: String,
    pub language: Option<String>,
    /// Address of the service; none means the address of `OpenAI`.
    pub api_url: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatSkill {
    pub name: String,
    pub description: String,
}

impl ChatAccess {
    /// Checks whether a list names somebody who may talk to the agent.
    pub const fn lists_somebody(&self) -> bool {
        let Self { users, roles, operators, bots, .. } = self;
        !(users.is_empty() && roles.is_empty() && operators.is_empty() && bots.is_empty())
    }
}

impl AgentChat {
    /// Returns the settings for a platform.
    pub fn on(&self, platform: ChatPlatform) -> Option<&PlatformChat> {
        self.platforms.iter().find(|chat| chat.platform == platform)
    }

    /// Returns the names of the environment variables that contain the tokens of its bots and the keys of its speech
    /// services.
    pub fn secret_variables(&self) -> impl Iterator<Item = &str> {
        self.platforms.iter().flat_map(|chat| {
            let voice = chat.voice.as_ref().map(|voice| voice.key_env.as_str());
            [Some(chat.bot.token_env.as_str()), chat.bot.app_token_env.as_deref(), voice]
                .into_iter()
                .flatten()
        })
    }
}

impl PlatformChat {
    /// Returns the key of the bot, which contains no secret. Agents with the same key share the bot.
    pub fn bot_key(&self) -> String {
        format!("{}:{}", self.platform, self.bot.token_env)
    }
}

impl Default for DirectRules {
    fn default() -> Self {
        Self {
            enabled: true,
            mode: AnswerMode::Auto,
            everyone: false,
            allowlist: Vec::new(),
            blocklist: Vec::new(),
            context_messages: CONTEXT_MESSAGES,
        }
    }
}

/// Default number of earlier messages in a prompt.
pub const CONTEXT_MESSAGES: u32 = 10;

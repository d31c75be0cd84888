//! The bots of a config, and the connector of each. A connector can make requests without being connected.

use std::sync::Arc;
use std::time::Duration;

use cowhand_chat::discord::{DiscordConnector, DiscordSettings, SlashCommand};
use cowhand_chat::slack::{SlackConnector, SlackSettings};
use cowhand_chat::{ChatError, Connector};
use cowhand_core::backoff::Backoff;
use cowhand_core::chat::attachment::MissingReason;
use cowhand_core::chat::settings::BotConfig;
use cowhand_core::chat::{ChatAttachment, ChatPlace, ChatPlatform};
use cowhand_core::id::AgentName;
use cowhand_core::roster::Roster;
use jiff::SignedDuration;
use tokio::time::{Instant, sleep, timeout_at};
use uuid::Uuid;

use cowhand_system::wait;
use cowhand_work::WorkSources;

const REQUEST_BACKOFF: Backoff =
    Backoff::doubling(SignedDuration::from_secs(1), SignedDuration::from_mins(1));
/// Namespace of the keys of posts.
const POST_KEY_NAMESPACE: Uuid = Uuid::from_u128(0x9f0b_7a52_3d44_4b1e_8b57_55c2_61d1_c0de);
/// Length of a key. The platforms accept at most 25 characters.
const POST_KEY_LENGTH: usize = 24;

/// Settings of a bot with the values of its tokens. A bot whose settings change is connected again.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct BotSettings {
    /// Key of the bot in the store. It contains no secret.
    pub(crate) key: String,
    pub(crate) platform: ChatPlatform,
    config: BotConfig,
    /// True if at least one agent of the bot can have skills.
    pub(crate) has_skills: bool,
    token: Option<String>,
    app_token: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectorError {
    #[error("the environment variable {0} is not set")]
    NoToken(String),
    #[error(transparent)]
    Chat(#[from] ChatError),
}

impl BotSettings {
    /// Checks whether two agents with these settings use the same bot.
    fn is_same(&self, other: &Self) -> bool {
        let has_same_token = self.token.is_some() && self.token == other.token;
        let has_same_platform =
            self.platform == other.platform && self.config.api_url == other.config.api_url;
        self.key == other.key || (has_same_platform && has_same_token)
    }

    /// Creates the connector of the bot, which registers these slash commands. It does not connect yet.
    pub(crate) fn connector(
        &self,
        commands: Vec<SlashCommand>,
    ) -> Result<Arc<dyn Connector>, ConnectorError> {
        let of = |value: &Option<String>, name: &str| {
            value.clone().ok_or_else(|| ConnectorError::NoToken(name.to_owned()))
        };
        let BotConfig { token_env, app_token_env, api_url, presence, command_guild } = self.config.clone();
        let bot_token = of(&self.token, &token_env)?;
        Ok(match self.platform {
            ChatPlatform::Slack => {
                let app_token = of(&self.app_token, app_token_env.as_deref().unwrap_or_default())?;
                Arc::new(SlackConnector::new(SlackSettings { bot_token, app_token, api_url })?)
            }
            ChatPlatform::Discord => Arc::new(DiscordConnector::new(DiscordSettings {
                bot_token,
                api_url,
                presence,
                commands,
                command_guild,
            })?),
        })
    }
}

/// Returns the bots of a config with the agents that use them, both in the order of the config. Agents share a bot if
/// their token variables have the same name or the same value: a platform sends each event to only one of several
/// connections with a token. The first variable names the bot.
pub(crate) fn bots_of(roster: &Roster, sources: &WorkSources) -> Vec<(BotSettings, Vec<AgentName>)> {
    let context = sources.context();
    let mut bots: Vec<(BotSettings, Vec<AgentName>)> = Vec::new();
    for agent in &roster.agents {
        for chat in agent.chat.iter().flat_map(|chat| &chat.platforms) {
            let variable = |name: &str| context.variable(name).filter(|value| !value.is_empty());
            let settings = BotSettings {
                key: chat.bot_key(),
                platform: chat.platform,
                has_skills: chat.skills.as_ref().is_none_or(|skills| !skills.is_empty()),
                token: variable(&chat.bot.token_env),
                app_token: chat.bot.app_token_env.as_deref().and_then(variable),
                config: chat.bot.clone(),
            };
            match bots.iter_mut().find(|(bot, _)| bot.is_same(&settings)) {
                Some((bot, agents)) => {
                    bot.has_skills |= settings.has_skills;
                    agents.push(agent.name.clone());
                }
                None => bots.push((settings, vec![agent.name.clone()])),
            }
        }
    }
    bots
}

/// Returns the key of a post, derived from the parts that identify the post.
pub(crate) fn post_key(parts: &[&str]) -> String {
    let mut key = Uuid::new_v5(&POST_KEY_NAMESPACE, parts.join("\n").as_bytes()).simple().to_string();
    key.truncate(POST_KEY_LENGTH);
    key
}

/// Returns why a file that was not downloaded is missing, in words without text of the platform.
pub(crate) const fn missing_reason(error: &ChatError) -> MissingReason {
    match error {
        ChatError::Revoked { .. } => MissingReason::NoBot,
        ChatError::Refused { .. } => MissingReason::Refused,
        ChatError::RateLimited { .. } | ChatError::Unavailable { .. } => MissingReason::Failed,
        ChatError::TooLarge { limit } => MissingReason::TooLarge(*limit),
    }
}

/// Returns the wait before a request is tried again.
pub(crate) fn wait_after(error: &ChatError, failures: u32) -> Duration {
    match error {
        ChatError::RateLimited { retry_after, .. } => *retry_after,
        ChatError::Revoked { .. }
        | ChatError::Refused { .. }
        | ChatError::Unavailable { .. }
        | ChatError::TooLarge { .. } => wait::length("chat_retry", REQUEST_BACKOFF.wait_after(failures)),
    }
}

/// A file of a message that is downloaded.
#[derive(Debug)]
pub(crate) struct Download<'a> {
    pub(crate) place: &'a ChatPlace,
    /// Id of the message.
    pub(crate) message: &'a str,
    pub(crate) attachment: &'a ChatAttachment,
    pub(crate) max_bytes: u64,
    /// Time for all tries together.
    pub(crate) patience: Duration,
}

impl Download<'_> {
    /// Returns the content of the file. Tries again after a temporary error, and with the current address if the
    /// platform refuses the stated one.
    pub(crate) async fn run(self, connector: &dyn Connector) -> Result<Vec<u8>, ChatError> {
        let deadline = Instant::now() + self.patience;
        let (mut attachment, mut failures, mut is_current) = (self.attachment.clone(), 0, false);
        loop {
            let tried = timeout_at(deadline, connector.download(&attachment, self.max_bytes)).await;
            let mut error = match tried {
                Ok(Ok(content)) => return Ok(content),
                Ok(Err(error)) => error,
                Err(_) => return Err(too_slow(self.patience)),
            };
            if matches!(error, ChatError::Refused { .. }) && !is_current {
                match connector.current_url(self.place, self.message, &attachment).await {
                    Ok(Some(url)) => {
                        (attachment.url, is_current) = (url, true);
                        continue;
                    }
                    Err(unknown) if unknown.is_temporary() => error = unknown,
                    Ok(None) | Err(_) => return Err(error),
                }
            }
            failures += 1;
            let wait = wait_after(&error, failures);
            if !error.is_temporary() || Instant::now() + wait > deadline {
                return Err(error);
            }
            sleep(wait).await;
        }
    }
}

fn too_slow(patience: Duration) -> ChatError {
    let reason = format!("the download took longer than {} s", patience.as_secs());
    ChatError::Unavailable { platform: "the platform", reason }
}

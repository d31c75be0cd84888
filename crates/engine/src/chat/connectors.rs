//! The bots of a config, and the connector of each.

use std::sync::Arc;

use cowhand_chat::discord::{DiscordConnector, DiscordSettings};
use cowhand_chat::slack::{SlackConnector, SlackSettings};
use cowhand_chat::{ChatError, Connector};
use cowhand_core::chat::ChatPlatform;
use cowhand_core::chat::settings::BotConfig;
use cowhand_core::id::AgentName;

use crate::loaded::Loaded;

/// Settings of a bot with the values of its tokens. A bot whose settings change is connected again.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct BotSettings {
    /// Key of the bot in the store. It contains no secret.
    pub(super) key: String,
    pub(super) platform: ChatPlatform,
    config: BotConfig,
    token: Option<String>,
    app_token: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectorError {
    #[error(
        "the environment variable {0} is not set; set it and restart the daemon, or add it to `.env` and reload the config"
    )]
    NoToken(String),
    #[error(transparent)]
    Chat(#[from] ChatError),
}

impl BotSettings {
    /// Creates the connector of the bot. It does not connect yet.
    pub(super) fn connector(&self) -> Result<Arc<dyn Connector>, ConnectorError> {
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
                commands: super::commands::slash_commands(),
                command_guild,
            })?),
        })
    }
}

/// Returns the bots of a config with the agents that use them, both in the order of the config. Agents with the same
/// token variable share a bot.
pub(super) fn bots_of(loaded: &Loaded) -> Vec<(BotSettings, Vec<AgentName>)> {
    let context = loaded.sources.context();
    let mut bots: Vec<(BotSettings, Vec<AgentName>)> = Vec::new();
    for agent in &loaded.roster.agents {
        for chat in agent.chat.iter().flat_map(|chat| &chat.platforms) {
            let key = format!("{}:{}", chat.platform, chat.bot.token_env);
            if let Some((_, agents)) = bots.iter_mut().find(|(bot, _)| bot.key == key) {
                agents.push(agent.name.clone());
                continue;
            }
            let variable = |name: &str| context.variable(name).filter(|value| !value.is_empty());
            let settings = BotSettings {
                key,
                platform: chat.platform,
                token: variable(&chat.bot.token_env),
                app_token: chat.bot.app_token_env.as_deref().and_then(variable),
                config: chat.bot.clone(),
            };
            bots.push((settings, vec![agent.name.clone()]));
        }
    }
    bots
}

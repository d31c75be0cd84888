//! The bot's own account and workspace.

use std::sync::{Arc, PoisonError};

use cowhand_core::chat::BotAccount;
use serde_json::Value;

use super::SlackConnector;
use super::api::{CallError, CallRepeat};

/// Account of the bot in its workspace.
#[derive(Debug)]
pub(super) struct SlackIdentity {
    pub(super) user: String,
    pub(super) bot: Option<String>,
    pub(super) name: String,
    pub(super) team: String,
    /// Address of the workspace, with a slash at its end.
    pub(super) url: String,
}

impl SlackIdentity {
    pub(super) fn of(answer: &Value) -> Self {
        let text = |key: &str| answer[key].as_str().unwrap_or_default().to_owned();
        Self {
            user: text("user_id"),
            bot: answer["bot_id"].as_str().map(str::to_owned),
            name: text("user"),
            team: text("team_id"),
            url: text("url"),
        }
    }

    pub(super) fn account(&self) -> BotAccount {
        BotAccount { id: self.user.clone(), name: self.name.clone() }
    }

    /// Returns true if the bot wrote this message.
    pub(super) fn wrote(&self, message: &Value) -> bool {
        let bot = message["bot_id"].as_str();
        message["user"].as_str() == Some(&self.user) || (bot.is_some() && bot == self.bot.as_deref())
    }

    /// Returns the link to a message.
    pub(super) fn link(&self, channel: &str, ts: &str, thread: Option<&str>) -> String {
        if self.url.is_empty() {
            return String::new();
        }
        let mut link = format!("{}archives/{channel}/p{}", self.url, ts.replace('.', ""));
        if let Some(thread) = thread.filter(|&thread| thread != ts) {
            link = format!("{link}?thread_ts={thread}&cid={channel}");
        }
        link
    }
}

impl SlackConnector {
    /// Returns the bot's account. Requests it from Slack if no earlier call has done so.
    pub(super) async fn identity(&self) -> Result<Arc<SlackIdentity>, CallError> {
        let known = self.identity.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match known {
            Some(identity) => Ok(identity),
            None => self.read_identity().await,
        }
    }

    pub(super) async fn read_identity(&self) -> Result<Arc<SlackIdentity>, CallError> {
        let answer = self.api.call("auth.test", &Vec::new(), CallRepeat::Always).await?;
        let identity = Arc::new(SlackIdentity::of(&answer));
        *self.identity.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&identity));
        Ok(identity)
    }
}

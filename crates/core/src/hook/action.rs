//! The hooks of an agent and what they do.

use std::time::Duration;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{HookEvent, HookKind, HookList};

/// Default time limit of a shell command.
pub const SHELL_HOOK_TIMEOUT: Duration = Duration::from_secs(30);
/// Default time limit of a request.
pub const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(10);
/// Default number of retries of a request.
pub const HOOK_RETRIES: u32 = 4;
/// Default environment variable that contains the token of a Slack bot.
pub const SLACK_TOKEN_VARIABLE: &str = "SLACK_BOT_TOKEN";

/// The hooks of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Hooks {
    /// Hooks after every job.
    pub after_run: Vec<Hook>,
    /// Hooks after failed jobs.
    pub on_error: Vec<Hook>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Hook {
    pub name: Option<String>,
    /// True if the following hooks run even if this hook fails.
    pub continue_on_error: bool,
    /// Hook events after which the hook runs; `None` means all, and an empty list means never.
    pub on_events: Option<Vec<HookEvent>>,
    /// Dotted path into the hook context; the value there has to count as true (see [`super::is_truthy`]).
    pub when: Option<String>,
    pub action: HookAction,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum HookAction {
    /// A shell command; it gets the hook context as JSON on stdin.
    Shell { command: String, timeout: Duration },
    /// An HTTP request with the hook context as its body.
    Webhook {
        url: String,
        method: HookMethod,
        headers: IndexMap<String, String>,
        timeout: Duration,
        /// Secret to sign the body.
        secret: Option<String>,
        /// Environment variable that contains the secret.
        secret_env: Option<String>,
        /// Number of retries after a response with status 5xx, 408 or 429, or without a response.
        retries: u32,
        /// True if `url` may be on this machine or its network.
        allow_private: bool,
    },
    /// A message to a Discord channel.
    Discord {
        channel_id: String,
        /// Environment variable that contains the bot's token.
        bot_token_env: String,
    },
    /// A message to a Slack channel.
    Slack {
        channel_id: String,
        /// Environment variable that contains the bot's token.
        bot_token_env: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum HookMethod {
    #[default]
    Post,
    Put,
}

impl Hooks {
    pub fn is_empty(&self) -> bool {
        self.after_run.is_empty() && self.on_error.is_empty()
    }

    /// Returns all hooks in the order of execution.
    pub fn all(&self) -> impl Iterator<Item = (HookList, &Hook)> {
        let of = |list: HookList| move |hook| (list, hook);
        self.after_run
            .iter()
            .map(of(HookList::AfterRun))
            .chain(self.on_error.iter().map(of(HookList::OnError)))
    }
}

impl Hook {
    pub const fn kind(&self) -> HookKind {
        match self.action {
            HookAction::Shell { .. } => HookKind::Shell,
            HookAction::Webhook { .. } => HookKind::Webhook,
            HookAction::Discord { .. } => HookKind::Discord,
            HookAction::Slack { .. } => HookKind::Slack,
        }
    }
}

//! What is done after a run.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Hooks {
    pub after_run: Vec<Hook>,
    pub on_error: Vec<Hook>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Hook {
    #[serde(default)]
    pub name: Option<String>,
    /// Unset means true.
    #[serde(default)]
    pub continue_on_error: Option<bool>,
    /// Only after these; unset means all.
    #[serde(default)]
    pub on_events: Option<Vec<HookEvent>>,
    /// A dotted path into the context that must hold something true.
    #[serde(default)]
    pub when: Option<String>,
    #[serde(flatten)]
    pub action: HookAction,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum HookAction {
    /// A command of the shell; the context is JSON on its input.
    Shell {
        #[schemars(length(min = 1))]
        command: String,
        /// Milliseconds; unset means 30000.
        #[serde(default)]
        #[schemars(range(min = 1))]
        timeout: Option<u64>,
    },
    /// An HTTP request with the context as its body.
    Webhook {
        #[schemars(extend("format" = "uri"))]
        url: String,
        #[serde(default)]
        method: Option<HookMethod>,
        #[serde(default)]
        #[schemars(extend("x-secret" = true))]
        headers: Option<IndexMap<String, String>>,
        /// Milliseconds; unset means 10000.
        #[serde(default)]
        #[schemars(range(min = 1))]
        timeout: Option<u64>,
        /// Signs the body: the header `X-Cowhand-Signature-256` is `sha256=` and its HMAC. Prefer `secret_env`, which
        /// keeps the secret out of the file.
        #[serde(default)]
        #[schemars(length(min = 1), extend("x-secret" = true))]
        secret: Option<String>,
        /// The environment variable that holds the secret.
        #[serde(default)]
        #[schemars(length(min = 1))]
        secret_env: Option<String>,
        /// How often it is sent again after an answer of 5xx, 408 or 429 or none at all; unset means 4.
        #[serde(default)]
        #[schemars(range(max = 10))]
        retries: Option<u32>,
        /// Whether `url` may be on this machine or its network; a redirect to elsewhere may not in any case.
        #[serde(default)]
        allow_private: Option<bool>,
    },
    /// A message to a Discord channel.
    Discord {
        #[schemars(length(min = 1))]
        channel_id: String,
        /// The environment variable that holds the bot's token.
        #[schemars(length(min = 1))]
        bot_token_env: String,
    },
    /// A message to a Slack channel.
    Slack {
        #[schemars(length(min = 1))]
        channel_id: String,
        /// The environment variable that holds the bot's token; unset means `SLACK_BOT_TOKEN`.
        #[serde(default)]
        bot_token_env: Option<String>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum HookMethod {
    Post,
    Put,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HookEvent {
    Completed,
    Failed,
    Timeout,
    Cancelled,
}

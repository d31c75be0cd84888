//! The keys of `hooks`: actions after the end of a job.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::hook::{HookEvent, HookMethod};

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Hooks")]
pub struct HooksConfig {
    pub after_run: Vec<HookConfig>,
    pub on_error: Vec<HookConfig>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Hook")]
pub struct HookConfig {
    #[serde(default)]
    pub name: Option<String>,
    /// Run the following hooks after a failure of this one; unset means true.
    #[serde(default)]
    pub continue_on_error: Option<bool>,
    /// Results of a job after which the hook runs; unset means all.
    #[serde(default)]
    pub on_events: Option<Vec<HookEvent>>,
    /// Dotted path into the hook context. The hook runs only if a value is there that is not null, false, 0 or empty
    /// text.
    #[serde(default)]
    pub when: Option<String>,
    #[serde(flatten)]
    pub action: HookActionConfig,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schemars(rename = "HookAction")]
pub enum HookActionConfig {
    /// A shell command; it gets the hook context as JSON on stdin.
    Shell {
        #[schemars(length(min = 1))]
        command: String,
        /// Time limit in milliseconds; unset means 30000.
        #[serde(default)]
        #[schemars(range(min = 1))]
        timeout: Option<u64>,
    },
    /// An HTTP request with the hook context as its body.
    Webhook {
        #[schemars(extend("format" = "uri"))]
        url: String,
        #[serde(default)]
        method: Option<HookMethod>,
        #[serde(default)]
        #[schemars(extend("x-secret" = true))]
        headers: Option<IndexMap<String, String>>,
        /// Time limit in milliseconds; unset means 10000.
        #[serde(default)]
        #[schemars(range(min = 1))]
        timeout: Option<u64>,
        /// Secret to sign the body: the header `X-Cowhand-Signature-256` is `sha256=` and the HMAC of
        /// the body. Prefer `secret_env`, which keeps the secret out of the file.
        #[serde(default)]
        #[schemars(length(min = 1), extend("x-secret" = true))]
        secret: Option<String>,
        /// Environment variable that contains the secret.
        #[serde(default)]
        #[schemars(length(min = 1), extend("format" = "variable"))]
        secret_env: Option<String>,
        /// Number of retries after a response with status 5xx, 408 or 429, or without a response; unset means 4.
        #[serde(default)]
        #[schemars(range(max = 10))]
        retries: Option<u32>,
        /// Allow `url` on this machine or its network; a redirect to another private address is never followed.
        #[serde(default)]
        allow_private: Option<bool>,
    },
    /// A message to a Discord channel.
    Discord {
        #[schemars(length(min = 1))]
        channel_id: String,
        /// Environment variable that contains the bot's token.
        #[schemars(length(min = 1), extend("format" = "variable"))]
        bot_token_env: String,
    },
    /// A message to a Slack channel.
    Slack {
        #[schemars(length(min = 1))]
        channel_id: String,
        /// Environment variable that contains the bot's token; unset means `SLACK_BOT_TOKEN`.
        #[serde(default)]
        #[schemars(extend("format" = "variable"))]
        bot_token_env: Option<String>,
    },
}

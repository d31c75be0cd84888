//! The keys of `notify` in the root file: where messages about incidents are sent, and which incidents are reported.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::interval::Interval;
use crate::notification::{Mailbox, NotifyRule, QuietHours, SmtpSecurity};
use crate::size::Size;

/// Messages to people about incidents, for example failed jobs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Notify")]
pub struct NotifyConfig {
    /// Targets by name.
    pub targets: IndexMap<String, NotifyTargetConfig>,
    /// Rules for the incidents of the whole fleet: of all agents, of providers, budgets, nodes and disks.
    pub rules: Vec<NotifyRule>,
    /// Hours in which notifications are held back.
    pub quiet_hours: Option<QuietHours>,
    /// Free space below which the disk of a state folder counts as low; unset means 1GB.
    pub disk_low: Option<Size>,
}

/// A place to which notifications are sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "NotifyTarget")]
pub struct NotifyTargetConfig {
    /// Time limit of one try; unset means 10s.
    #[serde(default)]
    pub timeout: Option<Interval>,
    #[serde(flatten)]
    pub action: NotifyActionConfig,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schemars(rename = "NotifyAction")]
pub enum NotifyActionConfig {
    /// A message to a Slack channel.
    Slack {
        #[schemars(length(min = 1))]
        channel_id: String,
        /// Environment variable that contains the bot's token; unset means `SLACK_BOT_TOKEN`.
        #[serde(default)]
        #[schemars(length(min = 1), extend("format" = "variable"))]
        bot_token_env: Option<String>,
    },
    /// A message to a Discord channel.
    Discord {
        #[schemars(length(min = 1))]
        channel_id: String,
        /// Environment variable that contains the bot's token; unset means `DISCORD_BOT_TOKEN`.
        #[serde(default)]
        #[schemars(length(min = 1), extend("format" = "variable"))]
        bot_token_env: Option<String>,
    },
    /// A `POST` request with the notification as JSON.
    Webhook {
        #[schemars(extend("format" = "uri"))]
        url: String,
        #[serde(default)]
        #[schemars(extend("x-secret" = true))]
        headers: Option<IndexMap<String, String>>,
        /// Secret to sign the body: the header `X-Cowhand-Signature-256` is `sha256=` and the HMAC of
        /// the body. Prefer `secret_env`, which keeps the secret out of the file.
        #[serde(default)]
        #[schemars(length(min = 1), extend("x-secret" = true))]
        secret: Option<String>,
        /// Environment variable that contains the secret.
        #[serde(default)]
        #[schemars(length(min = 1), extend("format" = "variable"))]
        secret_env: Option<String>,
        /// Allow `url` on this machine or its network; a redirect to another private address is never followed.
        #[serde(default)]
        allow_private: Option<bool>,
    },
    /// An e-mail.
    Email {
        /// Host name of the mail server.
        #[schemars(length(min = 1))]
        server: String,
        /// Port; unset means 587, with `security: tls` 465, with `security: none` 25.
        #[serde(default)]
        #[schemars(range(min = 1))]
        port: Option<u16>,
        /// Encryption of the connection; unset means `starttls`.
        #[serde(default)]
        security: Option<SmtpSecurity>,
        #[serde(default)]
        #[schemars(length(min = 1))]
        username: Option<String>,
        /// Environment variable that contains the password.
        #[serde(default)]
        #[schemars(length(min = 1), extend("format" = "variable"))]
        password_env: Option<String>,
        /// Address of the sender.
        from: Mailbox,
        /// Addresses of the receivers.
        #[schemars(length(min = 1))]
        to: Vec<Mailbox>,
        /// Certificate of a private certificate authority, in PEM form, relative to the root file.
        #[serde(default)]
        #[schemars(length(min = 1))]
        ca_file: Option<String>,
    },
    /// A program that gets the notification as JSON on stdin, in the directory of the root file.
    Command {
        /// Program and arguments.
        #[schemars(length(min = 1))]
        command: Vec<String>,
    },
}

//! The targets of notifications.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::word::written_as;

/// Default time limit of one try.
pub const NOTIFICATION_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time limit of one try. The lease of a notification is longer.
pub const MAX_NOTIFICATION_TIMEOUT: Duration = Duration::from_mins(1);
/// Default environment variable that contains the token of a Discord bot.
pub const DISCORD_TOKEN_VARIABLE: &str = "DISCORD_BOT_TOKEN";

/// A place to which notifications are sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotificationTarget {
    pub action: TargetAction,
    /// Time limit of one try.
    pub timeout: Duration,
}

/// How a target is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetAction {
    Slack {
        channel_id: String,
        /// Environment variable that contains the bot's token.
        bot_token_env: String,
    },
    Discord {
        channel_id: String,
        /// Environment variable that contains the bot's token.
        bot_token_env: String,
    },
    /// A `POST` request with the notification as JSON.
    Webhook {
        url: String,
        headers: IndexMap<String, String>,
        /// Secret to sign the body.
        secret: Option<String>,
        /// Environment variable that contains the secret.
        secret_env: Option<String>,
        /// True if `url` may be on this machine or its network.
        allow_private: bool,
    },
    Email {
        /// Host name of the mail server.
        server: String,
        port: u16,
        security: SmtpSecurity,
        username: Option<String>,
        /// Environment variable that contains the password.
        password_env: Option<String>,
        from: Mailbox,
        to: Vec<Mailbox>,
        /// Certificate of a private authority, in PEM form.
        ca_file: Option<PathBuf>,
    },
    /// A program that gets the notification as JSON on stdin.
    Command { command: Vec<String>, directory: PathBuf },
}

/// How the connection to a mail server is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SmtpSecurity {
    /// The connection begins without encryption and is encrypted before the login.
    #[default]
    Starttls,
    /// The connection is encrypted from its beginning.
    Tls,
    /// The connection is not encrypted; only for a server on this machine.
    None,
}

written_as! {
    SmtpSecurity { Starttls = "starttls", Tls = "tls", None = "none" }
}

impl SmtpSecurity {
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Starttls => 587,
            Self::Tls => 465,
            Self::None => 25,
        }
    }
}

impl NotificationTarget {
    /// Returns the type in the config.
    pub const fn type_name(&self) -> &'static str {
        match self.action {
            TargetAction::Slack { .. } => "slack",
            TargetAction::Discord { .. } => "discord",
            TargetAction::Webhook { .. } => "webhook",
            TargetAction::Email { .. } => "email",
            TargetAction::Command { .. } => "command",
        }
    }

    /// Returns the environment variable that the target needs.
    pub fn variable(&self) -> Option<&str> {
        match &self.action {
            TargetAction::Slack { bot_token_env, .. } | TargetAction::Discord { bot_token_env, .. } => {
                Some(bot_token_env)
            }
            TargetAction::Webhook { secret, secret_env, .. } => {
                secret_env.as_deref().filter(|_| secret.is_none())
            }
            TargetAction::Email { password_env, .. } => password_env.as_deref(),
            TargetAction::Command { .. } => None,
        }
    }
}

/// The address of a mailbox, with or without a name: `ops@example.com` or `Ops <ops@example.com>`. The mail library
/// checks the rest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String", extend("format" = "mailbox", "examples" = ["ops@example.com"]))]
pub struct Mailbox(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the address of a mailbox; for example ops@example.com or Ops <ops@example.com>")]
pub struct MailboxError(String);

impl Mailbox {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<Mailbox> for String {
    fn from(mailbox: Mailbox) -> Self {
        mailbox.0
    }
}

impl TryFrom<String> for Mailbox {
    type Error = MailboxError;

    fn try_from(text: String) -> Result<Self, MailboxError> {
        text.parse()
    }
}

impl FromStr for Mailbox {
    type Err = MailboxError;

    fn from_str(text: &str) -> Result<Self, MailboxError> {
        let address = match text.trim().strip_suffix('>') {
            Some(named) => named.rsplit_once('<').map_or("", |(_, address)| address),
            None => text.trim(),
        };
        let is_plain = |part: &str| {
            let is_special = |c: char| c.is_whitespace() || c.is_control() || "<>,;\"@".contains(c);
            !part.is_empty() && !part.contains(is_special)
        };
        let is_address = address.split_once('@').is_some_and(|(user, host)| is_plain(user) && is_plain(host));
        if is_address && !text.contains(char::is_control) {
            return Ok(Self(text.trim().to_owned()));
        }
        Err(MailboxError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_mailboxes() {
        for good in ["ops@example.com", "Ops <ops@example.com>", "a.b+c@mail.example", "ops@localhost"] {
            assert!(good.parse::<Mailbox>().is_ok(), "{good}");
        }
        for bad in
            ["", "ops", "ops@", "@example.com", "a@b@c", "a b@c", "Ops <ops>", "a@b, c@d", "a@b\r\nBcc: c@d"]
        {
            assert!(bad.parse::<Mailbox>().is_err(), "{bad}");
        }
    }
}

//! The resolved form of `notify` in the root file.

use std::path::Path;
use std::time::Duration;

use super::load::normalize;
use crate::hook::SLACK_TOKEN_VARIABLE;
use crate::notification::{
    DISCORD_TOKEN_VARIABLE, NOTIFICATION_TIMEOUT, NotificationSettings, NotificationTarget, TargetAction,
};
use crate::shape::{NotifyActionConfig, NotifyConfig, NotifyTargetConfig};

/// Resolves the settings. `base` is the directory of the root file.
pub(super) fn settings(config: NotifyConfig, base: &Path) -> NotificationSettings {
    let targets = config.targets.into_iter().map(|(name, target)| (name, resolved(target, base)));
    NotificationSettings {
        targets: targets.collect(),
        rules: config.rules,
        quiet_hours: config.quiet_hours,
        disk_low: NotificationSettings::disk_limit(config.disk_low),
    }
}

fn resolved(config: NotifyTargetConfig, base: &Path) -> NotificationTarget {
    let timeout = config.timeout.and_then(|timeout| Duration::try_from(timeout.duration()).ok());
    NotificationTarget {
        action: action(config.action, base),
        timeout: timeout.unwrap_or(NOTIFICATION_TIMEOUT),
    }
}

fn action(config: NotifyActionConfig, base: &Path) -> TargetAction {
    match config {
        NotifyActionConfig::Slack { channel_id, bot_token_env } => TargetAction::Slack {
            channel_id,
            bot_token_env: bot_token_env.unwrap_or_else(|| SLACK_TOKEN_VARIABLE.to_owned()),
        },
        NotifyActionConfig::Discord { channel_id, bot_token_env } => TargetAction::Discord {
            channel_id,
            bot_token_env: bot_token_env.unwrap_or_else(|| DISCORD_TOKEN_VARIABLE.to_owned()),
        },
        NotifyActionConfig::Webhook { url, headers, secret, secret_env, allow_private } => {
            TargetAction::Webhook {
                url,
                headers: headers.unwrap_or_default(),
                secret,
                secret_env,
                allow_private: allow_private.unwrap_or(false),
            }
        }
        NotifyActionConfig::Email { server, port, security, username, password_env, from, to, ca_file } => {
            let security = security.unwrap_or_default();
            TargetAction::Email {
                server,
                port: port.unwrap_or_else(|| security.default_port()),
                security,
                username,
                password_env,
                from,
                to,
                ca_file: ca_file.map(|file| normalize(&base.join(file))),
            }
        }
        NotifyActionConfig::Command { command } => {
            TargetAction::Command { command, directory: normalize(base) }
        }
    }
}

//! Checks tokens and scopes.

use super::SlackConnector;
use super::api::{CallError, CallRepeat, TokenKind};
use super::connection::SOCKET_MODE_ADVICE;
use crate::{ChatError, ExpectedPlaces, SetupProblem};

/// Scopes without which the bot cannot be used.
const FATAL_SCOPES: [&str; 2] = ["app_mentions:read", "chat:write"];

/// Scopes of the bot, with what does not work without each.
const NEEDED_SCOPES: [(&str, &str); 9] = [
    ("app_mentions:read", "the bot does not see that it is mentioned"),
    ("chat:write", "the bot cannot answer"),
    (
        "channels:history",
        "in public channels, the bot sees only messages that mention it, reads no earlier messages, and may post an \
         answer twice",
    ),
    (
        "groups:history",
        "in private channels, the bot sees only messages that mention it, reads no earlier messages, and may post an \
         answer twice",
    ),
    ("im:history", "the bot does not see direct messages"),
    ("users:read", "the bot knows people by their ids only, not by their names"),
    ("reactions:write", "the bot cannot acknowledge messages with a reaction"),
    ("files:read", "the bot cannot read attached files"),
    ("files:write", "the bot cannot send files"),
];

impl SlackConnector {
    pub(super) async fn check_setup(&self, places: &ExpectedPlaces) -> Result<Vec<SetupProblem>, ChatError> {
        let mut problems = Vec::new();
        match self.api.call_as(TokenKind::Bot, "auth.test", &Vec::new(), CallRepeat::Always).await {
            Ok(answer) => {
                let scopes = answer.scopes.as_deref();
                let missing = |(scope, _): &&(&str, &str)| {
                    scopes.is_some_and(|scopes| scopes.iter().all(|granted| granted != scope))
                };
                problems.extend(NEEDED_SCOPES.iter().filter(missing).map(|&(scope, effect)| SetupProblem {
                    problem: format!("the bot token does not have the scope {scope}: {effect}"),
                    advice: format!(
                        "add {scope} to the Bot Token Scopes under OAuth & Permissions of the Slack app, and \
                         install the app again"
                    ),
                    is_fatal: FATAL_SCOPES.contains(&scope),
                }));
                for channel in &places.channels {
                    problems.extend(self.channel_problem(channel).await?);
                }
            }
            Err(error) => problems.push(bot_token_problem(error)?),
        }
        let opened =
            self.api.call_as(TokenKind::App, "apps.connections.open", &Vec::new(), CallRepeat::Always).await;
        if let Err(error) = opened {
            problems.push(app_token_problem(error)?);
        }
        Ok(problems)
    }

    /// Returns why the bot does not see a channel; none if it sees the channel, or if a missing scope prevents the check.
    async fn channel_problem(&self, channel: &str) -> Result<Option<SetupProblem>, ChatError> {
        let params = vec![("channel", channel.to_owned()), ("limit", "1".to_owned())];
        let read = self.api.call("conversations.history", &params, CallRepeat::Always).await;
        let Err(error) = read else { return Ok(None) };
        let advice = match error.code() {
            None => return Err(error.into()),
            Some("not_in_channel") => "invite the bot into the channel",
            Some("channel_not_found") => {
                "correct the id, which is at the end of the details of the channel; invite the bot into a private channel"
            }
            Some("is_archived") => "unarchive the channel, or remove it from the config",
            Some(_) => return Ok(None),
        };
        let code = error.code().unwrap_or_default();
        Ok(Some(SetupProblem {
            problem: format!("the bot does not see the channel {channel} ({code}): it does not answer there"),
            advice: advice.to_owned(),
            is_fatal: false,
        }))
    }
}

fn bot_token_problem(error: CallError) -> Result<SetupProblem, ChatError> {
    match error {
        CallError::Code { code, .. } => Ok(SetupProblem {
            problem: format!("Slack does not accept the bot token ({code}): the bot cannot do anything"),
            advice: "install the Slack app in the workspace, and use the Bot User OAuth Token (xoxb-…) under OAuth & \
                     Permissions"
                .to_owned(),
            is_fatal: true,
        }),
        error => Err(error.into()),
    }
}

fn app_token_problem(error: CallError) -> Result<SetupProblem, ChatError> {
    match error {
        CallError::Code { code, .. } if code == "missing_scope" => Ok(SetupProblem {
            problem: "the app token does not have the scope connections:write: the bot receives no messages"
                .to_owned(),
            advice:
                "generate an App-Level Token with connections:write under Basic Information of the Slack app"
                    .to_owned(),
            is_fatal: true,
        }),
        CallError::Code { code, .. } => Ok(SetupProblem {
            problem: format!("Slack does not accept the app token ({code}): the bot receives no messages"),
            advice: format!(
                "use an App-Level Token (xapp-…) with connections:write, from Basic Information of the Slack app. If \
                 {SOCKET_MODE_ADVICE}"
            ),
            is_fatal: true,
        }),
        error => Err(error.into()),
    }
}

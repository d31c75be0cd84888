//! Buttons below the messages of the bot.

use std::fmt;
use std::str::FromStr;

use cowhand_core::ask::AskId;
use cowhand_core::chat::access::is_operator;
use cowhand_core::chat::{ButtonPress, texts};
use cowhand_core::id::JobId;
use tracing::warn;

use super::asks;
use super::bot::Bot;
use super::commands::stop_job;
use super::context::ChatContext;
use super::intake::{Addressee, Candidates};
use crate::fleet::FleetError;

/// Action of a button. Its text form is the value that the platform returns with a press. Anybody can send any value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ButtonValue {
    /// Removes a job from the queue.
    Cancel(JobId),
    /// Stops a running job.
    Stop(JobId),
    /// Answers an ask.
    Answer(AskId, AskChoice),
}

/// The answers to an ask that need no text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AskChoice {
    Allow,
    Deny,
    /// The option of a question with this number. The first option has number 1.
    Option(u8),
}

/// Error: the value of a press is not in a form that cowhand writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unknown button")]
pub(super) struct UnknownButton;

impl fmt::Display for ButtonValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cancel(job) => write!(f, "cancel:{job}"),
            Self::Stop(job) => write!(f, "stop:{job}"),
            Self::Answer(ask, AskChoice::Allow) => write!(f, "allow:{ask}"),
            Self::Answer(ask, AskChoice::Deny) => write!(f, "deny:{ask}"),
            Self::Answer(ask, AskChoice::Option(number)) => write!(f, "option-{number}:{ask}"),
        }
    }
}

impl FromStr for ButtonValue {
    type Err = UnknownButton;

    fn from_str(value: &str) -> Result<Self, UnknownButton> {
        let (kind, id) = value.split_once(':').ok_or(UnknownButton)?;
        let job = || id.parse().map_err(|_| UnknownButton);
        let ask = || id.parse().map_err(|_| UnknownButton);
        Ok(match kind {
            "cancel" => Self::Cancel(job()?),
            "stop" => Self::Stop(job()?),
            "allow" => Self::Answer(ask()?, AskChoice::Allow),
            "deny" => Self::Answer(ask()?, AskChoice::Deny),
            _ => {
                let number = kind.strip_prefix("option-").and_then(|number| number.parse().ok());
                Self::Answer(ask()?, AskChoice::Option(number.ok_or(UnknownButton)?))
            }
        })
    }
}

/// Executes the action of a pressed button, and returns the text for the presser.
pub(super) async fn answer_press(context: &ChatContext, bot: &Bot, press: &ButtonPress) -> String {
    let answer = match press.value.parse() {
        Ok(ButtonValue::Cancel(job) | ButtonValue::Stop(job)) => stop(context, bot, press, job).await,
        Ok(ButtonValue::Answer(ask, choice)) => {
            return asks::press::answer(context, bot, press, ask, choice).await;
        }
        Err(UnknownButton) => Ok(texts::unknown_button()),
    };
    let text = answer.unwrap_or_else(|error| {
        warn!(bot = bot.key, value = press.value, "cannot do what a button of a chat says: {error}");
        texts::not_done(&error.to_string(), bot.platform)
    });
    context.fleet.redactor().redact(&text).into_owned()
}

/// Stops the job of a button. The job has to answer in the conversation of the press. The presser has to be an operator
/// or the person who caused the job.
async fn stop(
    context: &ChatContext,
    bot: &Bot,
    press: &ButtonPress,
    job: JobId,
) -> Result<String, FleetError> {
    let Candidates { accepted, refused } =
        Candidates::of_call(context, bot, &press.place, &press.user).await?;
    let answer = context.store().chat_answer_of_job(job.clone()).await?;
    let answer = answer.filter(|answer| answer.origin.platform == bot.platform);
    let is_here = |one: &&Addressee| {
        answer.as_ref().is_some_and(|answer| {
            answer.agent == one.agent.name && answer.conversation == one.conversation.name
        })
    };
    let Some(addressee) = accepted.iter().find(is_here) else {
        let refusal = refused.filter(|_| accepted.is_empty());
        return Ok(refusal.map_or_else(texts::button_of_other_conversation, |(agent, refusal)| {
            refusal.text(&agent.name, bot.platform, context.now())
        }));
    };
    let is_own = answer.is_some_and(|answer| answer.origin.requester().id == press.user.id);
    if !is_own && !is_operator(&addressee.chat.access, &press.user) {
        return Ok(texts::needs_operator_to_stop(&job));
    }
    stop_job(context, super::actor_of(bot.platform, &press.user), job).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_buttons_are_read_as_they_are_written() {
        let job = "job-2026-01-05-a1b2c3";
        for value in ["cancel:JOB", "stop:JOB", "allow:JOB.1", "deny:JOB.12", "option-3:JOB.1"] {
            let value = value.replace("JOB", job);
            assert_eq!(value.parse::<ButtonValue>().unwrap().to_string(), value);
        }
        for value in [
            "",
            "stop",
            "stop:",
            "stop:JOB.1",
            "allow:JOB",
            "allow:JOB.0",
            "Allow:JOB.1",
            "option-:JOB.1",
            "option-256:JOB.1",
            "option-1:JOB",
            "other:JOB.1",
            "allow:JOB.1 ",
        ] {
            let value = value.replace("JOB", job);
            assert_eq!(value.parse::<ButtonValue>(), Err(UnknownButton), "{value}");
        }
    }
}

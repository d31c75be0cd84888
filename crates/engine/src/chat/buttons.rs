//! Buttons below the messages of the bot.

use std::fmt;
use std::str::FromStr;

use cowhand_core::ask::AskId;
use cowhand_core::chat::ButtonPress;
use cowhand_core::id::JobId;

use super::asks;
use super::bot::Bot;
use super::context::ChatContext;

/// What a button does. Its text is the value that the platform returns with a press; anybody can send any value.
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

/// The value of a press is not one that cowhand has posted.
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

/// Does what a pressed button says, and returns the text for the presser.
pub(super) async fn answer_press(context: &ChatContext, bot: &Bot, press: &ButtonPress) -> String {
    match press.value.parse() {
        Ok(ButtonValue::Answer(ask, choice)) => asks::press::answer(context, bot, press, ask, choice).await,
        Ok(ButtonValue::Cancel(_) | ButtonValue::Stop(_)) => UnknownButton.to_string(),
        Err(error) => error.to_string(),
    }
}

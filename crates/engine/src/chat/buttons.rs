//! Buttons below the messages of the bot.

use std::fmt;
use std::str::FromStr;

use cowhand_core::chat::ButtonPress;
use cowhand_core::id::JobId;

use super::bot::Bot;
use super::context::ChatContext;

/// What a button does. Its text is the value that the platform returns with a press; anybody can send any value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ButtonValue {
    /// Removes a job from the queue.
    Cancel(JobId),
    /// Stops a running job.
    Stop(JobId),
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
        }
    }
}

impl FromStr for ButtonValue {
    type Err = UnknownButton;

    fn from_str(value: &str) -> Result<Self, UnknownButton> {
        let (kind, job) = value.split_once(':').ok_or(UnknownButton)?;
        let job = job.parse().map_err(|_| UnknownButton)?;
        match kind {
            "cancel" => Ok(Self::Cancel(job)),
            "stop" => Ok(Self::Stop(job)),
            _ => Err(UnknownButton),
        }
    }
}

/// Does what a pressed button says, and returns the text for the presser.
pub(super) async fn answer_press(_context: &ChatContext, _bot: &Bot, _press: &ButtonPress) -> String {
    UnknownButton.to_string()
}

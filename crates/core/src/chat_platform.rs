//! The chat platforms.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::word::written_as;

/// Platform of a chat message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChatPlatform {
    Slack,
    Discord,
}

written_as! {
    ChatPlatform { Slack = "slack", Discord = "discord" }
}

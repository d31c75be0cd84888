//! What happens to a work item whose job failed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What happens to an item whose job did not go well, whatever the source.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ItemRules {
    /// Unset means `report`.
    pub on_failure: Option<OnFailure>,
    /// After so many failures an item is left for a person; unset means 3.
    #[schemars(range(min = 1))]
    pub max_item_attempts: Option<u32>,
}

/// When the agent says that it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// The source is told, and the item waits for a person.
    Report,
    /// The item goes back to the others.
    Release,
}

/// After so many failures in a row an item is left for a person.
const MOST_ATTEMPTS: u32 = 3;

impl ItemRules {
    pub fn most_attempts(&self) -> u32 {
        self.max_item_attempts.unwrap_or(MOST_ATTEMPTS)
    }
}

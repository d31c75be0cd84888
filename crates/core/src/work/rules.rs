//! The rules for a work item whose job failed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Rules for an item whose job failed, for every source.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ItemRules {
    /// Action if the agent reports a failure or its program ends with an error; unset means `report`.
    pub on_failure: Option<OnFailure>,
    /// Number of failures in a row after which an item is left for a person; unset means 3.
    #[schemars(range(min = 1))]
    pub max_item_attempts: Option<u32>,
}

/// Action if the agent reports a failure or its program ends with an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// Report the failure to the source; the item waits for a person.
    Report,
    /// Release the item, until it has failed `max_item_attempts` times in a row.
    Release,
}

/// Default number of failures in a row after which an item is left for a person.
const MAX_ATTEMPTS: u32 = 3;

impl ItemRules {
    pub fn max_attempts(&self) -> u32 {
        self.max_item_attempts.unwrap_or(MAX_ATTEMPTS)
    }
}

//! How an attempt's process ended: the keeper's word, kept in a file.

use cowhand_core::job::Termination;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    pub at: Timestamp,
    pub status: ExitStatus,
    /// Set if somebody asked for the end, and how it came about.
    pub stopped: Option<Termination>,
    /// Processes that outlived the agent and had to be ended.
    pub leftovers: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ExitStatus {
    /// It never ran.
    StartFailed {
        message: String,
    },
    Code {
        code: i32,
    },
    Signal {
        signal: i32,
    },
    /// Agent and keeper are gone, and nobody saw how.
    Lost,
}

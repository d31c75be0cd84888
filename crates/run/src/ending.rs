//! How an attempt's process ended, as the keeper writes it to a file.

use cowhand_core::job::Termination;
use cowhand_core::moment::BootTime;
use cowhand_system::clock::Clock;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    pub at: Timestamp,
    /// The boot clock at that time; none from a keeper of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<BootTime>,
    pub status: ExitStatus,
    /// Whether the process ended after the stop signal or was killed; none if nobody asked the keeper to stop.
    pub stopped: Option<Termination>,
    /// Number of processes that outlived the agent and were ended.
    pub leftovers: u32,
}

impl Ending {
    /// Returns the ending of a process that ends now.
    pub(crate) fn now(status: ExitStatus, stopped: Option<Termination>, leftovers: u32) -> Self {
        let now = Clock::System.moment();
        Self { at: now.wall, boot: now.boot, status, stopped, leftovers }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ExitStatus {
    /// The agent's program never ran.
    StartFailed {
        message: String,
    },
    Code {
        code: i32,
    },
    Signal {
        signal: i32,
    },
    /// The agent has ended, and its status is unknown, for example because the keeper ended before it.
    Lost,
}

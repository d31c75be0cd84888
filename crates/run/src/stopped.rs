//! The reason why a daemon stops an attempt. It is written before the stop, because the daemon may end before the
//! attempt.

use std::fs;
use std::io;

use serde::{Deserialize, Serialize};

use super::attempt::Attempt;
use super::supervision::AttemptState;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Stopped {
    /// The job is cancelled, for example by a person, by a later firing, or because the daemon stops.
    #[serde(rename = "asked")]
    Cancelled,
    TookTooLong {
        limit_ms: i64,
    },
    SilentTooLong {
        limit_ms: i64,
    },
    /// The spending exceeded a budget. The file does not name the budget; the daemon finds it again from the spending.
    OverBudget,
    /// The price of the attempt's tokens is unknown.
    Unpriced,
}

const STOPPED_FILE: &str = "stopped.json";

impl Attempt {
    pub fn note_stop(&self, why: Stopped) -> io::Result<()> {
        self.write(STOPPED_FILE, &why)
    }

    /// Removes the reason, for an attempt that could not be stopped.
    pub fn forget_stop(&self) -> io::Result<()> {
        match fs::remove_file(self.folder().join(STOPPED_FILE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// Returns why the attempt was stopped; `None` if it was not stopped, had ended before it could be stopped, or was
    /// stopped because the node had lost the lease.
    pub fn stopped(&self) -> io::Result<Option<Stopped>> {
        let by_itself = match self.state()? {
            AttemptState::Ended(ending) => ending.stopped.is_none() && !ending.status.is_lost(),
            AttemptState::Kept | AttemptState::Unkept | AttemptState::Gone => false,
        };
        if by_itself { Ok(None) } else { self.read(STOPPED_FILE) }
    }
}

//! Why a daemon asked for the end of an attempt: written down before it does, since it may not live to see that end.

use std::fs;
use std::io;

use serde::{Deserialize, Serialize};

use super::attempt::Attempt;
use super::ending::ExitStatus;
use super::supervision::AttemptState;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Stopped {
    /// Somebody wanted it.
    Asked,
    TookTooLong {
        limit_ms: i64,
    },
    SilentTooLong {
        limit_ms: i64,
    },
    /// Which one is found out again by what was spent.
    OverBudget,
    /// Nobody knows the price of its tokens.
    Unpriced,
}

const STOPPED_FILE: &str = "stopped.json";

impl Attempt {
    pub fn note_stop(&self, why: Stopped) -> io::Result<()> {
        self.write(STOPPED_FILE, &why)
    }

    /// It could not be asked to end after all.
    pub fn forget_stop(&self) -> io::Result<()> {
        match fs::remove_file(self.folder().join(STOPPED_FILE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// Why its end was asked for, unless it ended by itself before that.
    pub fn stopped(&self) -> io::Result<Option<Stopped>> {
        let by_itself = match self.standing()? {
            AttemptState::Ended(ending) => ending.stopped.is_none() && ending.status != ExitStatus::Lost,
            AttemptState::Kept | AttemptState::Unkept | AttemptState::Gone => false,
        };
        if by_itself { Ok(None) } else { self.read(STOPPED_FILE) }
    }
}

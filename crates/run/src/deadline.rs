//! The deadline of an attempt: the time until which its node is certain to have the lease of the job.
//!
//! The daemon moves the deadline after each renewal of the lease. The keeper reads it, and pauses or ends the agent when
//! it has passed, so that the agent does not work while another node may run the next attempt. The keeper needs no
//! daemon for this. An attempt without this file has no deadline.

use std::io;

use cowhand_core::lease::AtDeadline;
use cowhand_core::moment::BootTime;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::attempt::Attempt;

/// File with the deadline, written by the daemon.
const DEADLINE_FILE: &str = "deadline.json";
/// File with the pauses of the agent, written by the keeper.
const PAUSES_FILE: &str = "pauses.json";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deadline {
    /// Time on the boot clock after which the agent must not work.
    pub until: BootTime,
    pub action: AtDeadline,
    /// Time after which a paused agent is ended, in milliseconds.
    pub max_pause_ms: u64,
}

/// The pauses of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Pauses {
    /// Start of the present pause; `None` if the agent is not paused.
    pub current: Option<PauseStart>,
    /// End of the previous pause.
    pub resumed: Option<BootTime>,
    /// Length of all previous pauses together, in milliseconds.
    pub total_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PauseStart {
    pub at: Timestamp,
    pub boot: BootTime,
}

impl Pauses {
    /// Returns the length of all pauses together until `now`.
    pub fn total(&self, now: BootTime) -> SignedDuration {
        let earlier = SignedDuration::from_millis(i64::try_from(self.total_ms).unwrap_or(i64::MAX));
        let current = self.current.and_then(|start| now.since(start.boot)).unwrap_or_default();
        earlier.saturating_add(current)
    }
}

impl Attempt {
    /// Writes the deadline. A reader finds the old deadline or the new one.
    pub fn write_deadline(&self, deadline: &Deadline) -> io::Result<()> {
        self.write(DEADLINE_FILE, deadline)
    }

    pub fn deadline(&self) -> io::Result<Option<Deadline>> {
        self.read(DEADLINE_FILE)
    }

    pub(super) fn write_pauses(&self, pauses: &Pauses) -> io::Result<()> {
        self.write(PAUSES_FILE, pauses)
    }

    /// Returns the pauses of the agent. A record that cannot be read counts as no pause.
    pub fn pauses(&self) -> Pauses {
        self.read(PAUSES_FILE).ok().flatten().unwrap_or_default()
    }

    /// Returns the start of the present pause, if the agent is paused and the attempt has not ended.
    pub fn paused_since(&self) -> Option<PauseStart> {
        let current = self.pauses().current?;
        matches!(self.ending(), Ok(None)).then_some(current)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_present_pause_counts_within_its_boot() {
        let reading = |boot: u32, second: u32| -> BootTime {
            format!("00000000-0000-0000-0000-00000000000{boot}:{second}000000").parse().unwrap()
        };
        let boot = |second| reading(1, second);
        let current = Some(PauseStart { at: Timestamp::UNIX_EPOCH, boot: boot(10) });
        let other_boot = reading(2, 0);
        for (current, now, expected) in
            [(None, boot(50), 2), (current, boot(50), 42), (current, other_boot, 2)]
        {
            let pauses = Pauses { current, resumed: None, total_ms: 2_000 };
            assert_eq!(pauses.total(now), SignedDuration::from_secs(expected), "{current:?}");
        }
    }
}

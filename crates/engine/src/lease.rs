//! The leases of this node: what an attempt task knows about the lease of its job, and the deadline of its agent.

use std::io;
use std::sync::{Mutex, PoisonError};

use cowhand_core::id::AgentName;
use cowhand_core::lease::{AtDeadline, LeaseTimes, OnLostLease};
use cowhand_core::moment::BootTime;
use cowhand_core::roster::Roster;

use cowhand_run::attempt::Attempt;
use cowhand_run::deadline::Deadline;
use cowhand_system::remove::is_missing;

/// The lease that this node has taken or renewed for a job.
#[derive(Debug, Clone, Copy)]
pub struct JobLease {
    pub epoch: i64,
    pub on_lost: OnLostLease,
    /// Boot clock before the request to the database was sent.
    pub sent: BootTime,
}

/// Returns what happens to the agent's attempts if a lease cannot be renewed.
pub(crate) fn on_lost_lease(roster: &Roster, agent: &AgentName) -> OnLostLease {
    roster.agent(agent).map(|agent| agent.on_lost_lease).unwrap_or_default()
}

/// The deadline of one attempt. It moves with each renewal of the lease, and its keeper reads it from a file.
#[derive(Debug)]
pub(crate) struct AttemptDeadline {
    action: AtDeadline,
    /// The lock is held while the file is written, so that an earlier deadline never replaces a later one.
    until: Mutex<BootTime>,
}

impl AttemptDeadline {
    /// Returns the deadline of an attempt on a shared database; `None` if its agent continues without a lease.
    pub(crate) fn of(lease: JobLease, times: LeaseTimes) -> Option<Self> {
        let action = lease.on_lost.at_deadline()?;
        Some(Self { action, until: Mutex::new(times.deadline(lease.sent)) })
    }

    /// Moves the deadline after a renewal that was sent at `sent`.
    pub(crate) fn renewed(&self, sent: BootTime, times: LeaseTimes) {
        let mut until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        let moved = times.deadline(sent);
        if moved.since(*until).is_none_or(|later| later.is_positive()) {
            *until = moved;
        }
    }

    /// Writes the deadline for the keeper. Before the launch, the attempt may have no folder; then nothing is written.
    pub(crate) fn write(&self, attempt: &Attempt, times: LeaseTimes) -> io::Result<()> {
        let until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        if is_missing(attempt.folder()) {
            return Ok(());
        }
        let max_pause_ms = u64::try_from(times.max_pause.as_millis()).unwrap_or_default();
        attempt.write_deadline(&Deadline { until: *until, action: self.action, max_pause_ms })
    }

    /// Returns whether the agent must not work at this time.
    pub(crate) fn has_passed(&self, now: BootTime) -> bool {
        let until = *self.until.lock().unwrap_or_else(PoisonError::into_inner);
        now.since(until).is_some_and(|late| !late.is_negative())
    }
}

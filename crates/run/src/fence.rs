//! The fence of an attempt: the part of the keeper that pauses or ends the agent when the deadline of the attempt has
//! passed, and lets a paused agent continue when the daemon has moved the deadline.
//!
//! While the agent runs, the fence sleeps until the deadline that it knows, and then reads the file again: usually the
//! daemon has moved the deadline several times meanwhile. While the agent is paused, the fence reads the file several
//! times in a second.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::time::Duration;

use cowhand_core::duration;
use cowhand_core::lease::AtDeadline;
use cowhand_core::moment::BootTime;
use cowhand_system::clock::Clock;
use jiff::SignedDuration;
use tokio::signal::unix::Signal as UnixSignal;

use super::attempt::Attempt;
use super::boot_timer::BootTimer;
use super::cgroup::Cgroup;
use super::deadline::{Deadline, PauseStart, Pauses};
use super::ending::LeaseLoss;
use super::folder_access::log_error;
use super::pause::AgentPause;

/// Time between two looks at the deadline of a paused agent.
const PAUSED_LOOK_EVERY: Duration = Duration::from_millis(200);

/// Error of a keeper whose attempt lost its lease before the agent was started.
const LEASE_LOST_BEFORE_START: &str =
    "the node could not renew the lease of the job, so the agent was not started";

pub(super) struct LeaseFence<'a> {
    attempt: &'a Attempt,
    keeper: i32,
    timer: BootTimer,
    deadline: Deadline,
    pauses: Pauses,
    state: FenceState<'a>,
}

enum FenceState<'a> {
    Open,
    Paused(AgentPause<'a>),
    /// The agent is being ended, so there is nothing more to do.
    Ending,
}

impl<'a> LeaseFence<'a> {
    /// Returns the fence of an attempt; `None` if the attempt has no deadline.
    pub(super) fn of(attempt: &'a Attempt, keeper: i32) -> io::Result<Option<Self>> {
        let Some(deadline) = attempt.deadline()? else { return Ok(None) };
        let timer = BootTimer::new()?;
        timer.set(deadline.until)?;
        let pauses = Pauses::default();
        Ok(Some(Self { attempt, keeper, timer, deadline, pauses, state: FenceState::Open }))
    }

    /// Waits until the agent may be started. Fails if the lease is not renewed in time, or if the keeper is asked to
    /// stop meanwhile.
    pub(super) async fn wait_until_open(&mut self, asked_to_stop: &mut UnixSignal) -> io::Result<()> {
        let since = Clock::System.boot();
        loop {
            let now = self.read();
            if is_before(now, self.deadline.until) {
                return self.timer.set(self.deadline.until);
            }
            let is_over = self.deadline.action == AtDeadline::End || self.max_pause_has_passed(since, now);
            if is_over {
                return Err(io::Error::other(LEASE_LOST_BEFORE_START));
            }
            tokio::select! {
                _ = asked_to_stop.recv() => return Err(io::Error::other(LEASE_LOST_BEFORE_START)),
                () = tokio::time::sleep(PAUSED_LOOK_EVERY) => {}
            }
        }
    }

    pub(super) const fn is_paused(&self) -> bool {
        matches!(self.state, FenceState::Paused(_))
    }

    async fn wait(&self) {
        match self.state {
            FenceState::Open => self.timer.expired().await,
            FenceState::Paused(_) => tokio::time::sleep(PAUSED_LOOK_EVERY).await,
            FenceState::Ending => std::future::pending().await,
        }
    }

    /// Pauses the agent or lets it continue, as the deadline requires. Returns the reason if the agent has to be ended.
    async fn look(&mut self, group: Option<&Cgroup>) -> io::Result<Option<LeaseLoss>> {
        let now = self.read();
        let is_open = is_before(now, self.deadline.until);
        match std::mem::replace(&mut self.state, FenceState::Ending) {
            FenceState::Open if is_open => {
                self.timer.set(self.deadline.until)?;
                self.state = FenceState::Open;
            }
            FenceState::Open if self.deadline.action == AtDeadline::End => {
                return Ok(Some(LeaseLoss::AtDeadline));
            }
            FenceState::Open => {
                let pause = AgentPause::begin(self.attempt, self.keeper, group).await;
                self.state = FenceState::Paused(pause);
                let moment = Clock::System.moment();
                self.pauses.current = Some(PauseStart { at: moment.wall, boot: now });
                self.record(
                    "the agent is paused, because its node could not renew the lease of the job; it continues when \
                     the node has renewed the lease",
                );
            }
            FenceState::Paused(pause) if is_open => {
                if !pause.end().await {
                    self.state = FenceState::Paused(pause);
                    return Ok(None);
                }
                let length = self.resumed(now);
                self.record(&format!("the agent continues after a pause of {}", duration::rounded(length)));
                self.timer.set(self.deadline.until)?;
                self.state = FenceState::Open;
            }
            FenceState::Paused(mut pause) => {
                let since = self.pauses.current.map_or(now, |start| start.boot);
                if self.max_pause_has_passed(since, now) {
                    let paused_ms = self.deadline.max_pause_ms;
                    return Ok(Some(LeaseLoss::AfterPause { paused_ms }));
                }
                pause.hold().await;
                self.state = FenceState::Paused(pause);
            }
            FenceState::Ending => {}
        }
        Ok(None)
    }

    /// Called when the agent is being ended for another reason. A paused agent stays paused until it is killed.
    pub(super) fn give_up(&mut self) {
        self.state = FenceState::Ending;
    }

    /// Reads the deadline again, and returns the time of the boot clock before that. A deadline that cannot be read has
    /// not moved.
    fn read(&mut self) -> BootTime {
        let now = Clock::System.boot();
        match self.attempt.deadline() {
            Ok(deadline) => self.deadline = deadline.unwrap_or(self.deadline),
            Err(error) => log_error(self.attempt.folder(), &format!("cannot read the deadline: {error}")),
        }
        now
    }

    fn max_pause_has_passed(&self, since: BootTime, now: BootTime) -> bool {
        let max = SignedDuration::from_millis(i64::try_from(self.deadline.max_pause_ms).unwrap_or(i64::MAX));
        now.since(since).is_some_and(|paused| paused >= max)
    }

    /// Adds the present pause to the earlier pauses, and returns its length.
    fn resumed(&mut self, now: BootTime) -> SignedDuration {
        let length = self.pauses.current.take().and_then(|start| now.since(start.boot)).unwrap_or_default();
        let length_ms = u64::try_from(length.as_millis()).unwrap_or_default();
        self.pauses.total_ms = self.pauses.total_ms.saturating_add(length_ms);
        self.pauses.resumed = Some(now);
        length
    }

    /// Records the pauses for the daemon, and notes the change in the output of the agent. A full disk must not change
    /// what happens to the agent.
    fn record(&self, note: &str) {
        let written = self.attempt.write_pauses(&self.pauses).and_then(|()| self.note(note));
        if let Err(error) = written {
            log_error(self.attempt.folder(), &format!("cannot record that {note}: {error}"));
        }
    }

    /// Appends a note to the stderr of the agent. The agent may have been paused in the middle of a line.
    fn note(&self, note: &str) -> io::Result<()> {
        let mut stderr = self.attempt.open("stderr")?;
        let is_in_line = ends_in_line(&mut stderr)?;
        let line_break = if is_in_line { "\n" } else { "" };
        writeln!(self.attempt.append("stderr")?, "{line_break}cowhand: {note}")
    }
}

/// Waits until [`look`] has to be called; forever without a fence.
pub(super) async fn due(fence: Option<&LeaseFence<'_>>) {
    match fence {
        Some(fence) => fence.wait().await,
        None => std::future::pending().await,
    }
}

/// Calls [`LeaseFence::look`], if there is a fence.
pub(super) async fn look(
    fence: Option<&mut LeaseFence<'_>>,
    group: Option<&Cgroup>,
) -> io::Result<Option<LeaseLoss>> {
    match fence {
        Some(fence) => fence.look(group).await,
        None => Ok(None),
    }
}

fn is_before(now: BootTime, until: BootTime) -> bool {
    until.since(now).is_some_and(|left| left > SignedDuration::ZERO)
}

/// Returns whether the last line of a file is not complete.
fn ends_in_line(file: &mut File) -> io::Result<bool> {
    if file.seek(SeekFrom::End(0))? == 0 {
        return Ok(false);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

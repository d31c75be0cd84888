//! The supervision of an attempt from outside its keeper: finding out whether it runs, with or without a keeper, and
//! ending it.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use rustix::process::Signal;

use super::attempt::{AGENT_FILE, Attempt, AttemptLock, CAPS_FILE, KEEPER_FILE};
use super::cgroup::Cgroup;
use super::ending::Ending;
use super::process;
use cowhand_system::remove::is_missing;

/// Result of a request to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopOutcome {
    /// The keeper received the request and ends the attempt.
    Asked,
    /// The keeper is starting. The caller has to ask again.
    TooEarly,
    /// There is no keeper; remaining processes were killed.
    NoKeeper,
}

/// State of an attempt, as its folder and the kernel show it.
#[derive(Debug, Clone, PartialEq)]
pub enum AttemptState {
    /// A keeper supervises the attempt.
    Kept,
    /// The keeper has ended, but the agent or another process of the attempt lives.
    Unkept,
    /// The attempt has ended, and the keeper recorded how.
    Ended(Ending),
    /// The attempt has ended or never began, and its status is unknown.
    Gone,
}

impl Attempt {
    /// Removes the folder of another attempt of the same name before this one begins: a restored store assigns numbers
    /// again, and the ending of the other attempt must not count for this attempt. Fails while the other attempt runs.
    pub fn clear(&self) -> io::Result<()> {
        if is_missing(self.folder()) {
            return Ok(());
        }
        match self.state()? {
            AttemptState::Ended(_) | AttemptState::Gone => self.discard(),
            AttemptState::Kept | AttemptState::Unkept => {
                Err(io::Error::other("an earlier attempt with the same number still runs"))
            }
        }
    }

    /// Returns the state. Repeated calls return the same state until a process or a file changes. If there is neither a
    /// keeper nor an agent, also removes the container and the empty control groups of the attempt.
    pub fn state(&self) -> io::Result<AttemptState> {
        self.state_if(|| Ok(!self.marked()?.is_empty()))
    }

    /// Does the same as [`Self::state`], for callers that have already listed all processes: `marked` returns whether
    /// one of them belongs to the attempt.
    pub fn state_if(&self, marked: impl FnOnce() -> io::Result<bool>) -> io::Result<AttemptState> {
        if let Some(ending) = self.ending()? {
            return Ok(AttemptState::Ended(ending));
        }
        let _lock = match self.lock_if_present()? {
            AttemptLock::Taken => return Ok(AttemptState::Kept),
            lock => lock,
        };
        // There is no keeper now. A keeper may have written the ending after the first check and then ended.
        if let Some(ending) = self.ending()? {
            return Ok(AttemptState::Ended(ending));
        }
        let cgroup = self.cgroup()?;
        let lives = self.identity(AGENT_FILE)?.map_or(Ok(false), |agent| agent.lives())?;
        if !lives {
            self.end_container();
        }
        if lives || marked()? || cgroup.as_ref().map_or(Ok(false), Cgroup::has_processes)? {
            return Ok(AttemptState::Unkept);
        }
        // The keeper normally removes the group; this keeper is dead.
        cgroup.map(|cgroup| cgroup.remove());
        self.remove_caps();
        Ok(AttemptState::Gone)
    }

    /// Asks the keeper to end the attempt: gracefully, then by force. A second request skips the grace period.
    pub fn stop(&self) -> io::Result<StopOutcome> {
        if self.identity(KEEPER_FILE)?.is_some_and(|keeper| keeper.signal(Signal::TERM)) {
            return Ok(StopOutcome::Asked);
        }
        let Some(_lock) = self.try_lock()? else { return Ok(StopOutcome::TooEarly) };
        if let Some(cgroup) = self.cgroup()? {
            cgroup.kill()?;
        }
        process::signal_all(&self.marked()?, Signal::KILL);
        self.end_container();
        Ok(StopOutcome::NoKeeper)
    }

    /// Kills the remaining processes of an attempt that has no keeper, if its agent has ended. The keeper would have
    /// done the same. Does nothing while the agent lives, or if the process of the agent is not recorded.
    pub fn end_leftovers(&self) -> io::Result<()> {
        match self.identity(AGENT_FILE)? {
            Some(agent) if !agent.lives()? => self.stop().map(drop),
            Some(_) | None => Ok(()),
        }
    }

    /// Removes the control groups with limits that a dead keeper left.
    fn remove_caps(&self) {
        let recorded = fs::read_to_string(self.folder().join(CAPS_FILE)).unwrap_or_default();
        for group in recorded.lines().filter(|group| group.ends_with(self.name())) {
            // A group that is already removed, or not empty yet, is ignored.
            fs::remove_dir(group).ok();
        }
    }

    /// Kills all processes of the attempt except this one, including the keeper, and returns whether there were any.
    /// This works even if the attempt's folder is missing.
    pub fn kill_marked_processes(&self) -> io::Result<bool> {
        let strays = self.marked()?;
        process::signal_all(&strays, Signal::KILL);
        Ok(!strays.is_empty())
    }

    /// Kills the attempt with its keeper at once. Processes that remain are found when the caller checks again.
    pub fn kill(&self) -> io::Result<()> {
        self.kill_marked_processes()?;
        // If the keeper is dead by now, this also kills the control group and ends the container.
        self.stop().map(drop)
    }

    /// Kills all processes of the attempt except this one.
    pub(super) fn end_others(&self) -> io::Result<()> {
        self.kill_marked_processes().map(drop)
    }

    fn marked(&self) -> io::Result<Vec<i32>> {
        process::of_attempt(self.name())
    }

    /// Returns the names of all attempts, of any fleet, that have processes on this machine.
    pub fn running() -> io::Result<BTreeSet<String>> {
        Ok(process::of_attempts()?.into_iter().flat_map(|(_, names)| names).collect())
    }
}

/// Returns true if the attempt of a folder still runs, with or without a keeper.
pub fn is_running(folder: &Path) -> bool {
    let state = Attempt::at(folder).and_then(|attempt| {
        if is_missing(attempt.folder()) {
            return Ok(AttemptState::Gone);
        }
        attempt.state()
    });
    match state {
        Ok(AttemptState::Kept | AttemptState::Unkept) => true,
        Ok(AttemptState::Ended(_) | AttemptState::Gone) => false,
        // An attempt that cannot be read now may still run.
        Err(_) => !is_missing(folder),
    }
}

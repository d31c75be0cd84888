//! An attempt seen from outside: whether it runs, with or without a keeper, and how it is ended.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use rustix::process::Signal;

use super::attempt::{AGENT_FILE, Attempt, AttemptLock, CAPS_FILE, KEEPER_FILE};
use super::cgroup::Cgroup;
use super::ending::Ending;
use super::process;
use cowhand_system::remove::is_gone;

/// What came of a request to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopOutcome {
    /// The keeper sees to it.
    Asked,
    /// The keeper is just starting: ask again.
    TooEarly,
    /// There is no keeper; what was left was killed.
    NoKeeper,
}

/// Where an attempt stands, as its folder and the kernel tell.
#[derive(Debug, Clone, PartialEq)]
pub enum AttemptState {
    /// A keeper watches over it.
    Kept,
    /// The keeper is gone but the agent runs on.
    Unkept,
    /// It is over, with the keeper's word on how.
    Ended(Ending),
    /// It is over, or never began, and nobody knows how.
    Gone,
}

impl Attempt {
    /// Removes what another attempt of the same name left, before this one begins: a store that was restored gives numbers
    /// out again, and how an attempt of that other history ended says nothing about this one. Fails while it still runs.
    pub fn clear(&self) -> io::Result<()> {
        if is_gone(self.folder()) {
            return Ok(());
        }
        match self.standing()? {
            AttemptState::Ended(_) | AttemptState::Gone => self.discard(),
            AttemptState::Kept | AttemptState::Unkept => {
                Err(io::Error::other("an earlier attempt with the same number still runs"))
            }
        }
    }

    /// Asking twice gives the same answer unless something happened in between.
    pub fn standing(&self) -> io::Result<AttemptState> {
        self.standing_if(|| Ok(!self.marked()?.is_empty()))
    }

    /// As above, for whoever has looked at all processes already: `marked` says whether one of them carries the mark.
    pub fn standing_if(&self, marked: impl FnOnce() -> io::Result<bool>) -> io::Result<AttemptState> {
        if let Some(ending) = self.ending()? {
            return Ok(AttemptState::Ended(ending));
        }
        let _lock = match self.lock_if_there()? {
            AttemptLock::Taken => return Ok(AttemptState::Kept),
            lock => lock,
        };
        // The lock is free, so no keeper is at work.
        if let Some(ending) = self.ending()? {
            return Ok(AttemptState::Ended(ending));
        }
        let cgroup = self.cgroup()?;
        let lives = self.identity(AGENT_FILE)?.map_or(Ok(false), |agent| agent.lives())?;
        if !lives {
            self.end_container();
        }
        if lives || marked()? || cgroup.as_ref().map_or(Ok(false), Cgroup::holds_any)? {
            return Ok(AttemptState::Unkept);
        }
        // Its keeper would have removed it.
        cgroup.map(|cgroup| cgroup.remove());
        self.remove_caps();
        Ok(AttemptState::Gone)
    }

    /// Asks the keeper to end it: gracefully, then by force. A second time is at once.
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

    /// Kills what is left of an attempt without a keeper whose agent itself has ended, as its keeper would have done. Leaves
    /// everything alone while the agent lives, and if nobody wrote down which process it is.
    pub fn end_leftovers(&self) -> io::Result<()> {
        match self.identity(AGENT_FILE)? {
            Some(agent) if !agent.lives()? => self.stop().map(drop),
            Some(_) | None => Ok(()),
        }
    }

    /// Groups that its keeper would have removed.
    fn remove_caps(&self) {
        let recorded = fs::read_to_string(self.folder().join(CAPS_FILE)).unwrap_or_default();
        for group in recorded.lines().filter(|group| group.ends_with(self.name())) {
            // One that is gone, or not empty yet, is looked at again.
            fs::remove_dir(group).ok();
        }
    }

    /// For an attempt whose folder is gone: kills what still carries its mark, keeper included, and says whether
    /// there was anything.
    pub fn end_strays(&self) -> io::Result<bool> {
        let strays = self.marked()?;
        process::signal_all(&strays, Signal::KILL);
        Ok(!strays.is_empty())
    }

    /// At once, with its keeper. What could not be killed yet is found by the next look of the caller.
    pub fn kill(&self) -> io::Result<()> {
        self.end_strays()?;
        // Without its keeper the control group goes as well.
        self.stop().map(drop)
    }

    /// All but ourselves.
    pub(super) fn end_others(&self) -> io::Result<()> {
        self.end_strays().map(drop)
    }

    fn marked(&self) -> io::Result<Vec<i32>> {
        process::of_attempt(self.name())
    }

    /// Names all attempts, of any fleet, that have processes on this machine.
    pub fn running() -> io::Result<BTreeSet<String>> {
        Ok(process::of_attempts()?.into_iter().flat_map(|(_, names)| names).collect())
    }
}

/// Says whether an attempt still runs, by its folder.
pub fn is_watched(folder: &Path) -> bool {
    let standing = Attempt::at(folder).and_then(|attempt| {
        if is_gone(attempt.folder()) {
            return Ok(AttemptState::Gone);
        }
        attempt.standing()
    });
    match standing {
        Ok(AttemptState::Kept | AttemptState::Unkept) => true,
        Ok(AttemptState::Ended(_) | AttemptState::Gone) => false,
        // What cannot be read now may be watched over all the same.
        Err(_) => !is_gone(folder),
    }
}

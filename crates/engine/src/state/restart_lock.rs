//! The lock that `cowhand restart` holds while it replaces the daemon. Meanwhile no daemon may hold the state folder, and
//! other commands wait for the new daemon. The kernel releases the lock however the command ends.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::StateFolder;
use cowhand_system::lock_file;

const RESTART_LOCK: &str = "restart.lock";
const MAX_TRIES: u32 = 1_000;
const RETRY_INTERVAL: Duration = Duration::from_millis(1);

/// Set while this process holds the lock: it does not wait for itself.
static IS_HELD_HERE: AtomicBool = AtomicBool::new(false);

/// The state folder of a daemon that is being replaced.
#[derive(Debug)]
pub struct RestartLock {
    /// Locked until it is closed.
    _file: File,
}

impl Drop for RestartLock {
    fn drop(&mut self) {
        IS_HELD_HERE.store(false, Ordering::Relaxed);
    }
}

impl StateFolder {
    /// Takes the lock. Returns `None` if another command holds it, or if the file cannot be opened: commands then do not
    /// wait for the new daemon.
    pub fn lock_for_restart(&self) -> Option<RestartLock> {
        let file = self.open_restart_lock(true).ok()?;
        // A command that checks the lock holds it for an instant.
        let mut tries = 0..MAX_TRIES;
        while let Err(error) = file.try_lock() {
            if tries.next().is_none() || !matches!(error, TryLockError::WouldBlock) {
                return None;
            }
            std::thread::sleep(RETRY_INTERVAL);
        }
        IS_HELD_HERE.store(true, Ordering::Relaxed);
        Some(RestartLock { _file: file })
    }

    /// Returns whether another command replaces the daemon now. Creates no file.
    pub fn is_restarting(&self) -> bool {
        !IS_HELD_HERE.load(Ordering::Relaxed)
            && self
                .open_restart_lock(false)
                .is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }

    fn open_restart_lock(&self, create: bool) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).create(create).truncate(false).mode(0o600);
        lock_file::open(&mut options, &self.path().join(RESTART_LOCK))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_notice_a_restart_until_it_ends() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateFolder::at(folder.path());
        assert!(
            !state.is_restarting() && !folder.path().join(RESTART_LOCK).exists(),
            "the check creates no file"
        );
        let lock = state.lock_for_restart().unwrap();
        assert!(!state.is_restarting(), "the command does not wait for itself");
        assert!(state.lock_for_restart().is_none());
        IS_HELD_HERE.store(false, Ordering::Relaxed);
        assert!(state.is_restarting());
        drop(lock);
        assert!(!state.is_restarting());
    }
}

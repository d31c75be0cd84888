//! The lock that a daemon holds on its state folder while it runs. The kernel releases it however the process ends.
//!
//! The lock consists of two locks: one of the file `daemon.lock`, and one of the folder `attempts`. The file can be
//! removed by mistake; then the lock of the folder is still held. Older versions lock only the file. The state folder
//! itself cannot be locked, because the store locks the state folder while the store is opened.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileExt as _, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use super::{StateFolder, read_small, unreadable};
use cowhand_system::lock_file;

const LOCK: &str = "daemon.lock";
/// Word before the pid of a process that starts a fleet.
const STARTING: &str = "starting ";

/// Locked state folder.
#[derive(Debug)]
pub struct StateLock {
    /// The open state folder, to detect that it was removed, moved or replaced.
    folder: File,
    file: File,
    /// The open folder `attempts`; `None` if it did not exist when the lock was taken.
    attempts: Option<File>,
    /// True if the lock file contains the pid.
    has_pid: bool,
}

/// State of the lock of a state folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockState {
    Held,
    /// The lock file, or the folder of the attempts, was removed or replaced; the state folder is the same.
    FileGone,
    /// The folder was removed, moved or replaced.
    FolderGone,
}

/// Result of locking the folder of the attempts.
enum AttemptsLock {
    Taken(File),
    NoFolder,
    HeldByOther,
}

impl StateFolder {
    /// Takes the lock. Returns `None` if another process holds it.
    pub fn lock(&self) -> io::Result<Option<StateLock>> {
        let Some(file) = self.try_lock_file()? else { return Ok(None) };
        let attempts = match self.try_lock_attempts()? {
            AttemptsLock::Taken(attempts) => Some(attempts),
            AttemptsLock::NoFolder => None,
            AttemptsLock::HeldByOther => return Ok(None),
        };
        Ok(Some(StateLock { folder: File::open(&self.0)?, file, attempts, has_pid: false }))
    }

    /// Locks the folder of the attempts.
    fn try_lock_attempts(&self) -> io::Result<AttemptsLock> {
        let attempts = match File::open(self.attempts()) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(AttemptsLock::NoFolder),
            opened => opened?,
        };
        Ok(match attempts.try_lock() {
            Err(TryLockError::WouldBlock) => AttemptsLock::HeldByOther,
            // Some network disks cannot lock a folder. Then the lock of the file has to suffice.
            Ok(()) | Err(TryLockError::Error(_)) => AttemptsLock::Taken(attempts),
        })
    }

    fn try_lock_file(&self) -> io::Result<Option<File>> {
        let mut options = OpenOptions::new();
        options.read(true).create(true).truncate(false).mode(0o600);
        let file = lock_file::open(&mut options, &self.lock_file()).map_err(|error| match error.kind() {
            ErrorKind::InvalidInput => unreadable(&self.lock_file(), &error),
            _ => error,
        })?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    pub(crate) fn lock_file(&self) -> PathBuf {
        self.0.join(LOCK)
    }

    pub fn has_lock_file(&self) -> bool {
        self.lock_file().is_file()
    }

    /// Returns whether a daemon holds the lock of the folder. Creates no file.
    pub fn is_locked(&self) -> bool {
        if self.has_lock_file() {
            matches!(self.lock(), Ok(None))
        } else {
            matches!(self.try_lock_attempts(), Ok(AttemptsLock::HeldByOther))
        }
    }

    /// Returns the pid of the daemon that holds the lock and answers on the owner's socket. Returns `None` if the fleet
    /// has no such socket (for example in a program that uses the library), if the daemon is of an older version, or if
    /// the process has ended.
    pub fn lock_holder(&self) -> Option<u32> {
        self.pid_after("")
    }

    /// Returns the process that holds the lock and starts a fleet; `None` as soon as the fleet has started.
    pub fn starting_process(&self) -> Option<u32> {
        self.pid_after(STARTING)
    }

    /// Returns the process whose pid follows this word in the lock file, if it has not ended.
    fn pid_after(&self, word: &str) -> Option<u32> {
        let text = String::from_utf8(read_small(&self.lock_file()).ok()?).ok()?;
        let pid = text.trim().strip_prefix(word)?.parse().ok()?;
        fs::exists(format!("/proc/{pid}")).unwrap_or_default().then_some(pid)
    }
}

impl StateLock {
    /// Writes into the lock file that this process starts a fleet. This replaces the pid of an earlier daemon. Errors
    /// are ignored: the pid is only for messages.
    pub(crate) fn write_starting(&self) {
        let text = format!("{STARTING}{}\n", std::process::id());
        let _ = self.file.set_len(0).and_then(|()| self.file.write_all_at(text.as_bytes(), 0));
    }

    /// Removes the pid from the lock file: a fleet without the owner's socket does not need it.
    pub(crate) fn mark_started(&self) {
        let _ = self.file.set_len(0);
    }

    /// Writes the pid of this process into the lock file. The pid is not needed for the lock, so errors, for example of
    /// a full disk, are ignored.
    pub(crate) fn write_pid(&mut self) {
        self.has_pid = true;
        let text = format!("{}\n", std::process::id());
        let _ = self.file.set_len(0).and_then(|()| self.file.write_all_at(text.as_bytes(), 0));
    }

    /// Returns the state of the lock as another process would find it. Files that cannot be examined now count as
    /// present.
    pub(crate) fn state(&self, state: &StateFolder) -> LockState {
        if !is_same(&self.folder, fs::metadata(state.path())) {
            LockState::FolderGone
        } else if !is_same(&self.file, fs::symlink_metadata(state.lock_file()))
            || !self.attempts.as_ref().is_some_and(|held| is_same(held, fs::metadata(state.attempts())))
        {
            LockState::FileGone
        } else {
            LockState::Held
        }
    }

    /// Locks the lock file and the folder of the attempts again, each only if it was removed or replaced. Returns false
    /// if another process has locked the new file or folder.
    pub(crate) fn lock_again(&mut self, state: &StateFolder) -> io::Result<bool> {
        if !is_same(&self.file, fs::symlink_metadata(state.lock_file())) {
            let Some(file) = state.try_lock_file()? else { return Ok(false) };
            self.file = file;
            if self.has_pid {
                self.write_pid();
            }
        }
        let attempts = state.attempts();
        if !self.attempts.as_ref().is_some_and(|held| is_same(held, fs::metadata(&attempts))) {
            DirBuilder::new().recursive(true).mode(0o700).create(&attempts)?;
            match state.try_lock_attempts()? {
                AttemptsLock::Taken(attempts) => self.attempts = Some(attempts),
                AttemptsLock::NoFolder => {}
                AttemptsLock::HeldByOther => return Ok(false),
            }
        }
        Ok(true)
    }
}

fn is_same(held: &File, found: io::Result<Metadata>) -> bool {
    let Ok(held) = held.metadata() else { return true };
    match found {
        Ok(found) => (found.dev(), found.ino()) == (held.dev(), held.ino()),
        Err(error) => !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_stays_locked_without_lock_file() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateFolder::at(folder.path());
        assert!(!state.is_locked() && !state.lock_file().exists(), "the check creates no file");
        fs::create_dir(state.attempts()).unwrap();
        assert!(!state.is_locked() && !state.lock_file().exists(), "the check creates no file");
        let mut lock = state.lock().unwrap().unwrap();
        let holders = || (state.starting_process(), state.lock_holder());
        lock.write_starting();
        assert_eq!(holders(), (Some(std::process::id()), None));
        lock.mark_started();
        assert_eq!(holders(), (None, None));
        lock.write_starting();
        lock.write_pid();
        assert_eq!(holders(), (None, Some(std::process::id())));
        assert!(state.is_locked() && state.lock().unwrap().is_none());
        assert_eq!((lock.state(&state), state.lock_holder()), (LockState::Held, Some(std::process::id())));
        fs::remove_file(state.lock_file()).unwrap();
        assert!(state.is_locked() && !state.lock_file().exists());
        assert_eq!(lock.state(&state), LockState::FileGone);
        assert!(state.lock().unwrap().is_none(), "a new lock file does not help: `attempts` is locked");
        assert_eq!(lock.state(&state), LockState::FileGone);
        assert!(lock.lock_again(&state).unwrap());
        assert_eq!((lock.state(&state), state.lock_holder()), (LockState::Held, Some(std::process::id())));
        fs::remove_dir(state.attempts()).unwrap();
        assert_eq!(lock.state(&state), LockState::FileGone);
        assert!(state.lock().unwrap().is_none());
        assert!(lock.lock_again(&state).unwrap());
        assert_eq!(lock.state(&state), LockState::Held);
        drop(lock);
        assert!(!state.is_locked() && state.lock().unwrap().is_some());
    }

    /// An older version locks only the file.
    #[test]
    fn lock_of_file_alone_counts() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateFolder::at(folder.path());
        let old = state.try_lock_file().unwrap().unwrap();
        assert!(state.is_locked() && state.lock().unwrap().is_none() && state.lock_holder().is_none());
        drop(old);
        let mut lock = state.lock().unwrap().unwrap();
        fs::remove_file(state.lock_file()).unwrap();
        let _old = state.try_lock_file().unwrap().unwrap();
        assert!(!lock.lock_again(&state).unwrap());
    }

    #[test]
    fn moved_folder_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateFolder::at(folder.path().join("state"));
        fs::create_dir_all(state.attempts()).unwrap();
        let lock = state.lock().unwrap().unwrap();
        fs::rename(state.path(), folder.path().join("other")).unwrap();
        assert_eq!(lock.state(&state), LockState::FolderGone);
        fs::create_dir(state.path()).unwrap();
        assert_eq!(lock.state(&state), LockState::FolderGone);
    }
}

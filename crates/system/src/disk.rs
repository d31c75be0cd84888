//! Disks that cannot be written: what is wrong, and what to do.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::path::Path;

/// Size of the test file: about the smallest amount that a job writes.
const TEST_WRITE_SIZE: usize = 64 << 10;

/// Reason why no file on a disk can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskProblem {
    Full,
    ReadOnly,
}

impl DiskProblem {
    pub const fn of(kind: ErrorKind) -> Option<Self> {
        match kind {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Some(Self::Full),
            ErrorKind::ReadOnlyFilesystem => Some(Self::ReadOnly),
            _ => None,
        }
    }

    /// Writes a test file in a folder, and returns what is wrong with its disk. Returns `None` if the write succeeds,
    /// or fails for another reason.
    pub fn find(folder: &Path) -> Option<Self> {
        test_write_in(folder).err().and_then(|error| Self::of(error.kind()))
    }

    /// Describes the problem of the disk with this folder, and what to do while a daemon runs.
    pub fn sentence(self, folder: impl Display) -> String {
        let (state, remedy) = (self.state(), self.remedy());
        format!(
            "the disk of {folder} is {state}, so nothing can be written; {remedy}, and cowhand continues by itself"
        )
    }

    /// Describes the problem of the disk with this folder, and what to do if no daemon runs.
    pub fn sentence_without_daemon(self, folder: impl Display) -> String {
        let (state, remedy) = (self.state(), self.remedy());
        format!(
            "the disk of {folder} is {state}, so no daemon can start; {remedy}, and then start it with `cowhand start -d`"
        )
    }

    /// Describes the problem of the disk with this folder, and what to do before a command is run again.
    pub fn sentence_for_retry(self, folder: impl Display) -> String {
        let (state, remedy) = (self.state(), self.remedy());
        format!("the disk of {folder} is {state}; {remedy}, and run the command again")
    }

    const fn state(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::ReadOnly => "read-only",
        }
    }

    const fn remedy(self) -> &'static str {
        match self {
            Self::Full => "free space on it",
            Self::ReadOnly => "mount it writable again (`dmesg` may say why it became read-only)",
        }
    }
}

/// Returns the space on the disk of a folder that users without privileges can still use, in bytes.
pub fn free_space(folder: &Path) -> io::Result<u64> {
    let disk = rustix::fs::statvfs(folder)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Writes and syncs a test file in a folder. The file has no name, so the system removes it when it is closed.
pub fn test_write_in(folder: &Path) -> io::Result<()> {
    let mut file = tempfile::tempfile_in(folder)?;
    file.write_all(&vec![0; TEST_WRITE_SIZE])?;
    file.sync_all()
}

//! Shortages of the machine. A start that fails because of a shortage is not a failure of the job or its config. The
//! start is tried again, and succeeds when the resource is available again.

use std::path::Path;

/// Message of a keeper that has no access to the attempt's folder because the mode of the folder was changed. The
/// keeper restores the mode or waits.
pub(super) const FOLDER_NOT_ACCESSIBLE: &str = "the folder of the attempt is not accessible";

/// Messages that report a shortage. They come from the system (for EMFILE, ENFILE, ENOMEM, EAGAIN, ENOSPC and EDQUOT),
/// from SQLite and from cowhand itself. An error may contain them as a part of a longer message.
const SHORTAGE_ERRORS: [&str; 10] = [
    FOLDER_NOT_ACCESSIBLE,
    "Too many open files",
    "Cannot allocate memory",
    "Resource temporarily unavailable",
    "No space left on device",
    "Disk quota exceeded",
    "unable to open database file",
    "database or disk is full",
    "out of memory",
    // cowhand's own words for a disk that is full or read-only.
    ", so nothing can be written; ",
];

/// Returns true if a message of cowhand reports a shortage. Callers must not pass messages of agents or of commands of
/// the config, because these can contain any text.
pub fn is_shortage(message: &str) -> bool {
    SHORTAGE_ERRORS.iter().any(|name| message.contains(name))
}

/// Free space below which a disk counts as full.
const MIN_FREE_BYTES: u64 = 64 << 10;

/// Names the first of these folders whose disk has no space left: `the disk of /a/b is full`.
pub fn full_disk(folders: &[&Path]) -> Option<String> {
    let is_full = |folder: &&&Path| {
        rustix::fs::statvfs(**folder).is_ok_and(|disk| is_full(disk.f_blocks, disk.f_bavail, disk.f_frsize))
    };
    folders.iter().find(is_full).map(|folder| format!("the disk of {} is full", folder.display()))
}

/// Returns true if a disk with these blocks is full. Some file systems, such as `/proc`, have no blocks and are never
/// full.
const fn is_full(blocks: u64, available: u64, block_size: u64) -> bool {
    blocks > 0 && available.saturating_mul(block_size) < MIN_FREE_BYTES
}

#[cfg(test)]
mod tests {
    use std::io;

    use rustix::io::Errno;

    use super::*;

    #[test]
    fn nearly_full_disks_are_recognized() {
        for (blocks, available, block_size, expected) in [
            (1000, 0, 4096, true),
            (1000, 15, 4096, true),
            (1000, 16, 4096, false),
            (1000, 1, 1 << 20, false),
            (0, 0, 4096, false),
            (u64::MAX, u64::MAX, 4096, false),
        ] {
            assert_eq!(is_full(blocks, available, block_size), expected, "{blocks} {available} {block_size}");
        }
        assert_eq!(full_disk(&[Path::new("/proc"), Path::new("/no/such/folder")]), None);
    }

    #[test]
    fn shortage_errors_are_recognized() {
        for (errno, expected) in [
            (Errno::MFILE, true),
            (Errno::NFILE, true),
            (Errno::NOMEM, true),
            (Errno::AGAIN, true),
            (Errno::NOSPC, true),
            (Errno::DQUOT, true),
            (Errno::NOENT, false),
            (Errno::ACCESS, false),
            (Errno::IO, false),
            (Errno::NOEXEC, false),
        ] {
            let error = io::Error::from_raw_os_error(errno.raw_os_error());
            assert_eq!(is_shortage(&format!("cannot start it: {error}")), expected, "{error}");
        }
    }
}

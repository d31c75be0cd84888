//! Shortages of the machine. A start that fails for that reason is no fault of the job or its config, and succeeds once
//! the resource is available again.

/// Message of a keeper whose folder's mode was changed. The keeper restores it or waits.
pub(super) const FOLDER_CLOSED: &str = "the folder of the attempt was closed";

/// Messages of the system and SQLite for EMFILE, ENFILE, ENOMEM, EAGAIN, ENOSPC and EDQUOT. Errors of the standard
/// library contain these words, also as part of a longer message.
const SHORTAGE_ERRORS: [&str; 9] = [
    FOLDER_CLOSED,
    "Too many open files",
    "Cannot allocate memory",
    "Resource temporarily unavailable",
    "No space left on device",
    "Disk quota exceeded",
    "unable to open database file",
    "database or disk is full",
    "out of memory",
];

/// Returns true if a message of cowhand reports a shortage. It is not for messages of agents or commands, which can
/// contain anything.
pub fn is_named_in(message: &str) -> bool {
    SHORTAGE_ERRORS.iter().any(|name| message.contains(name))
}

#[cfg(test)]
mod tests {
    use std::io;

    use rustix::io::Errno;

    use super::*;

    #[test]
    fn which_errors_are_a_shortage() {
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
            assert_eq!(is_named_in(&format!("cannot start it: {error}")), expected, "{error}");
        }
    }
}

//! What a machine can run out of. A start that fails for want of it is no fault of the job or its config, and succeeds once
//! there is enough again.

/// How a keeper says that somebody changed the mode of its folder, which is restored or waited for.
pub(super) const FOLDER_CLOSED: &str = "the folder of the attempt was closed";

/// How the system and SQLite name a shortage: EMFILE, ENFILE, ENOMEM, EAGAIN, ENOSPC and EDQUOT. Errors of the standard
/// library say it in these words, also after they became part of a sentence.
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

/// Says whether a message tells of a shortage. Only for messages of ours: what an agent or a command of the config says is
/// theirs to choose.
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

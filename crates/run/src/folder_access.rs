//! The access of a keeper to the folder of its attempt. A process of the same user can change the mode of the folder.
//! The keeper then restores the mode, and waits until it can write again.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use super::attempt::{Attempt, KEEPER_FILE};
use cowhand_system::closed::{advice, closed_folder, restore_mode};

/// Delay before a failed write is tried again.
pub(super) const WRITE_RETRY_DELAY: Duration = Duration::from_secs(1);

/// Folder of all attempts in a state folder.
const ATTEMPTS_FOLDER: &str = "attempts";

/// Set after the keeper has logged a restored mode, so that it logs only the first one.
static RESTORE_LOGGED: OnceLock<()> = OnceLock::new();

/// Writes a line to the keeper's log, which is its stderr. Errors are ignored: a full disk cannot be reported.
pub(super) fn log_error(folder: &Path, what: &str) {
    writeln!(io::stderr(), "keeper: {}: {what}", folder.display()).ok();
}

/// Restores the mode of the state folder, of the folder of all attempts and of this attempt's folder, where the owner
/// lacks a right. Returns whether a mode was restored.
pub(super) fn restore(attempt: &Attempt) -> bool {
    let mut restored = false;
    for folder in own_folders(attempt.folder()) {
        let lacks = fs::symlink_metadata(folder).is_ok_and(|found| found.mode() & 0o700 != 0o700);
        let Some(mode) = lacks.then(|| restore_mode(folder).ok().flatten()).flatten() else { continue };
        restored = true;
        if RESTORE_LOGGED.set(()).is_ok() {
            let message = format!("{} had mode {mode:03o}, and its mode is 700 again", folder.display());
            log_error(attempt.folder(), &message);
        }
    }
    restored
}

/// Returns true if the folder of the attempt was not accessible. Its mode is restored if possible.
pub(super) fn was_inaccessible(attempt: &Attempt) -> bool {
    restore(attempt) || closed_folder(&attempt.folder().join(KEEPER_FILE)).is_some()
}

/// Returns the folders whose mode the keeper restores, the outermost first.
fn own_folders(folder: &Path) -> Vec<&Path> {
    let all = folder.parent().filter(|all| all.file_name().is_some_and(|name| name == ATTEMPTS_FOLDER));
    let state = all.and_then(Path::parent);
    [state, all, Some(folder)].into_iter().flatten().collect()
}

/// Restores the modes again and again until the folder of the attempt is accessible.
pub(super) async fn wait_until_accessible(attempt: &Attempt) {
    let mut reported = false;
    loop {
        restore(attempt);
        let Some(closed) = closed_folder(&attempt.folder().join(KEEPER_FILE)) else { return };
        if !reported {
            let message = format!(
                "permission denied, so the end of the attempt is not written yet: {}",
                advice(&closed)
            );
            log_error(attempt.folder(), &message);
        }
        reported = true;
        tokio::time::sleep(WRITE_RETRY_DELAY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_of_a_state_folder_are_restored() {
        let found = own_folders(Path::new("/a/.cowhand/attempts/job-2026-01-05-abc123.1"));
        let all = ["/a/.cowhand", "/a/.cowhand/attempts", "/a/.cowhand/attempts/job-2026-01-05-abc123.1"];
        assert_eq!(found, all.map(Path::new));
        let elsewhere = Path::new("/tmp/job-2026-01-05-abc123.1");
        assert_eq!(own_folders(elsewhere), [elsewhere]);
    }
}

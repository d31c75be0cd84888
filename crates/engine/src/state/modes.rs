//! Restores the modes of the files in the state folder. A process of the same user can change them, by mistake or on
//! purpose. Then nobody can reach the daemon, or every user can.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use tracing::{error, info, warn};

use super::StateFolder;
use cowhand_system::closed::{advice, closed_folder, restore_mode};

/// Entries of the folder that only the owner may use, in addition to the folder itself.
const PRIVATE_ENTRIES: [&str; 11] = [
    "jobs",
    "attempts",
    "talk",
    "workspaces",
    "strangers",
    "sock",
    "talk/job.sock",
    "store.db",
    "store.db-wal",
    "store.db-shm",
    "daemon.lock",
];

/// Paths whose change has been logged. Each path is logged once.
static LOGGED_PATHS: Mutex<Option<HashSet<PathBuf>>> = Mutex::new(None);

/// Restores the mode of each path, as far as possible: 700 for a folder, 600 for a file. A folder has to come before
/// its contents.
pub(crate) fn restore(paths: &[&Path]) {
    for path in paths {
        let Ok(Some(mode)) = restore_mode(path) else { continue };
        let mut logged = LOGGED_PATHS.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.get_or_insert_default().insert((*path).to_owned()) {
            let (path, kind) = (path.display(), if path.is_dir() { 700 } else { 600 });
            warn!(
                "a process of the same user changed the mode of {path} to {mode:03o}; cowhand has set it back to \
                 {kind}, because only the owner may have access and cowhand needs it"
            );
        }
    }
}

/// Keeps the modes of one state folder correct.
#[derive(Debug, Default)]
pub(crate) struct Modes {
    /// The state folder or a folder above it, if access to that folder was denied at the last check.
    closed: Option<PathBuf>,
}

impl Modes {
    /// Restores the modes, and logs when the folder becomes unreachable or reachable again.
    pub(crate) fn check(&mut self, state: &StateFolder) {
        state.restore_modes();
        let closed = closed_folder(&state.lock_file());
        match (&closed, &self.closed) {
            (Some(folder), None) => error!(
                "cannot open the state folder {}: permission denied; running agents continue, and the daemon \
                 continues as soon as it can open the folder: {}",
                state.path().display(),
                advice(folder)
            ),
            (None, Some(_)) => info!("the state folder {} can be reached again", state.path().display()),
            _ => {}
        }
        self.closed = closed;
    }
}

impl StateFolder {
    /// Restores the modes of the folder and of [`PRIVATE_ENTRIES`].
    pub(crate) fn restore_modes(&self) {
        restore(&[&self.0]);
        for name in PRIVATE_ENTRIES {
            restore(&[&self.0.join(name)]);
        }
    }
}

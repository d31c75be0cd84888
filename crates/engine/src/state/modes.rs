//! The modes of what is in the state folder. A process of the same owner can change them, by mistake or on purpose, and then
//! nobody reaches the daemon, or everybody does.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use tracing::{error, info, warn};

use super::StateFolder;
use cowhand_system::closed::{advice, closed_folder, reopen};

/// What is in the folder and is for its owner alone, beside the folder itself.
const OWN: [&str; 11] = [
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

/// Told once for each path, however often it has to be done.
static TOLD: Mutex<Option<HashSet<PathBuf>>> = Mutex::new(None);

/// Restores the owner's mode of each path, as far as that is possible. What contains comes before what is contained.
pub(crate) fn restore(paths: &[&Path]) {
    for path in paths {
        let Ok(Some(mode)) = reopen(path) else { continue };
        let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
        if told.get_or_insert_default().insert((*path).to_owned()) {
            let (path, kind) = (path.display(), if path.is_dir() { 700 } else { 600 });
            warn!(
                "{path} had mode {mode:03o}, and its mode is {kind} again: it is for its owner alone, and cowhand cannot \
                 work without it. A process of the same user changed it"
            );
        }
    }
}

/// Looks after the modes of one state folder.
#[derive(Debug, Default)]
pub(crate) struct Modes {
    /// The folder on the way to it that cannot be searched.
    closed: Option<PathBuf>,
}

impl Modes {
    /// Restores what can be restored, and says, when that changes, whether the folder can be reached.
    pub(crate) fn look(&mut self, state: &StateFolder) {
        state.restore_modes();
        let closed = closed_folder(&state.lock_file());
        match (&closed, &self.closed) {
            (Some(folder), None) => error!(
                "cannot reach the state folder {}: permission denied; running agents go on, and so does the daemon as soon \
                 as it can: {}",
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
    /// Restores the owner's mode of the folder and of what is in it.
    pub(crate) fn restore_modes(&self) {
        restore(&[&self.0]);
        for name in OWN {
            restore(&[&self.0.join(name)]);
        }
    }
}

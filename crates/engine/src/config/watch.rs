//! Notices changes in the files of a config.
//!
//! Folders are watched, not files, because an editor replaces the old file with a new file. Nothing is polled: if the
//! system has no watcher, or loses an event without reporting the loss, the user has to call `cowhand reload`.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;
use tracing::warn;

use cowhand_system::blocking::run_blocking;

/// Time without further events after which a change counts as complete. An editor, or a checkout of a branch, writes
/// several times.
const CHANGE_SETTLES_AFTER: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub struct ConfigWatch {
    root: PathBuf,
    changed: Arc<Notify>,
    /// Watcher that stops when it is dropped.
    _watcher: Option<RecommendedWatcher>,
}

impl ConfigWatch {
    /// Watches all current files of the config. Only later changes are noticed, so read the config after this call.
    pub fn new(root: &Path) -> Self {
        let changed = Arc::new(Notify::new());
        let watcher = watch(watched_files(root), Arc::clone(&changed));
        let watcher = watcher.inspect_err(|error| warn!("changed files will not be noticed: {error}")).ok();
        Self { root: root.to_owned(), changed, _watcher: watcher }
    }

    /// Waits until a change is complete; without a watcher, forever. Returns a new watch, because the config may now
    /// have other files.
    pub async fn change(self) -> Self {
        self.changed.notified().await;
        while tokio::time::timeout(CHANGE_SETTLES_AFTER, self.changed.notified()).await.is_ok() {}
        run_blocking(move || Self::new(&self.root)).await
    }
}

fn watched_files(root: &Path) -> HashSet<PathBuf> {
    super::load(root).watched.into_iter().collect()
}

fn watch(files: HashSet<PathBuf>, changed: Arc<Notify>) -> notify::Result<RecommendedWatcher> {
    let folders: HashSet<PathBuf> = files.iter().filter_map(|file| Some(file.parent()?.to_owned())).collect();
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
        let is_of_config =
            |event: &Event| event.need_rescan() || event.paths.iter().any(|path| files.contains(path));
        if event.is_ok_and(|event| !event.kind.is_access() && is_of_config(&event)) {
            changed.notify_one();
        }
    })?;
    for folder in folders.iter().filter(|folder| folder.is_dir()) {
        watcher.watch(folder, RecursiveMode::NonRecursive)?;
    }
    Ok(watcher)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_would_not_be_used_instead_is_not_watched() {
        let folder = tempfile::TempDir::new().unwrap();
        for (root, text, expected) in [
            ("cowhand.yaml", "agents: []", &[".env", "cowhand.yaml"][..]),
            ("cowhand.yml", "agents: []", &[".env", "cowhand.yaml", "cowhand.yml"]),
            ("other.yaml", "agents: []", &[".env", "other.yaml"]),
            ("another.yaml", "fleets: [{path: cowhand.yml}]", &[".env", "another.yaml", "cowhand.yml"]),
        ] {
            std::fs::write(folder.path().join(root), text).unwrap();
            let files = watched_files(&folder.path().join(root));
            let expected: HashSet<PathBuf> = expected.iter().map(|name| folder.path().join(name)).collect();
            assert_eq!(files, expected, "{root}");
            std::fs::remove_file(folder.path().join(root)).unwrap();
        }
    }
}

//! Notices changes in the files of a config.
//!
//! Folders are watched, not files, because an editor replaces the old file with a new file. Nothing is polled: if the
//! system has no watcher, or loses an event without reporting the loss, the user has to call `cowhand reload`.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;
use tracing::warn;

/// Time without further events after which a change counts as complete. An editor, or a checkout of a branch, writes
/// several times.
const CHANGE_SETTLES_AFTER: Duration = Duration::from_millis(200);

/// A file that the loader tried to read, and its state just before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchedFile {
    path: PathBuf,
    /// None if the file did not exist.
    state: Option<FileState>,
}

/// The state of a file, by which a change is noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileState {
    inode: u64,
    length: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
}

impl WatchedFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { state: FileState::of(&path), path }
    }

    fn is_changed(&self) -> bool {
        FileState::of(&self.path) != self.state
    }
}

impl FileState {
    fn of(path: &Path) -> Option<Self> {
        let file = fs::metadata(path).ok()?;
        Some(Self { inode: file.ino(), length: file.len(), modified: (file.mtime(), file.mtime_nsec()) })
    }
}

#[derive(Debug)]
pub struct ConfigWatch {
    changed: Arc<Notify>,
    /// True if a change was noticed and may not be complete.
    is_changing: bool,
    /// Watcher that stops when it is dropped.
    watcher: Option<RecommendedWatcher>,
}

impl ConfigWatch {
    /// Watches the files of a config that was read. A change since it was read is noticed, too.
    pub fn new(files: &[WatchedFile]) -> Self {
        let changed = Arc::new(Notify::new());
        let paths = files.iter().map(|file| file.path.clone()).collect();
        let watcher = watch(paths, Arc::clone(&changed));
        let watcher = watcher.inspect_err(|error| warn!("changed files will not be noticed: {error}")).ok();
        if watcher.is_some() && files.iter().any(WatchedFile::is_changed) {
            changed.notify_one();
        }
        Self { changed, is_changing: false, watcher }
    }

    /// Waits until a change is complete; without a watcher, forever. If the call is dropped, the next call waits for the
    /// same change.
    pub async fn change(&mut self) {
        if self.watcher.is_none() {
            return std::future::pending().await;
        }
        if !self.is_changing {
            self.changed.notified().await;
            self.is_changing = true;
        }
        while tokio::time::timeout(CHANGE_SETTLES_AFTER, self.changed.notified()).await.is_ok() {}
        self.is_changing = false;
    }
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
    use futures_util::FutureExt as _;

    use super::*;

    fn watched_files(root: &Path) -> HashSet<PathBuf> {
        crate::config::load(root).watched.into_iter().map(|file| file.path).collect()
    }

    #[tokio::test]
    async fn a_change_before_the_watch_begins_is_noticed() {
        let folder = tempfile::TempDir::new().unwrap();
        let file = folder.path().join("cowhand.yaml");
        std::fs::write(&file, "agents: []").unwrap();
        let read = crate::config::load(&file).watched;
        let mut unchanged = ConfigWatch::new(&read);
        assert!(unchanged.change().now_or_never().is_none());
        std::fs::write(&file, "agents: [ ]").unwrap();
        ConfigWatch::new(&read).change().await;
        std::fs::write(&file, "agents: []").unwrap();
        let read = crate::config::load(&file).watched;
        std::fs::write(folder.path().join(".env"), "A=b").unwrap();
        ConfigWatch::new(&read).change().await;
    }

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

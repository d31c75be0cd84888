//! Hearing of changes in the files of a config.
//!
//! Folders are watched, not files: an editor puts a new file in the place of the old one. Nothing is polled; where
//! the system has no watcher to give, or drops an event, `cowhand reload` is left.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;
use tracing::warn;

use cowhand_system::blocking::run_blocking;

/// An editor, or a checkout of a branch, writes more than once.
const SETTLE: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub struct ConfigWatch {
    root: PathBuf,
    changed: Arc<Notify>,
    /// Watches as long as it lives.
    _watcher: Option<RecommendedWatcher>,
}

impl ConfigWatch {
    /// Of all files that the config is made of now. Changes count from here on, so read it after this.
    pub fn new(root: &Path) -> Self {
        let files: HashSet<PathBuf> = super::load(root).files.into_iter().collect();
        let changed = Arc::new(Notify::new());
        let watcher = watch(files, Arc::clone(&changed));
        let watcher = watcher.inspect_err(|error| warn!("changed files will not be noticed: {error}")).ok();
        Self { root: root.to_owned(), changed, _watcher: watcher }
    }

    /// Waits for a change, and until it is over. The files may be others now: the answer watches those.
    pub async fn change(self) -> Self {
        self.changed.notified().await;
        while tokio::time::timeout(SETTLE, self.changed.notified()).await.is_ok() {}
        run_blocking(move || Self::new(&self.root)).await
    }
}

fn watch(files: HashSet<PathBuf>, changed: Arc<Notify>) -> notify::Result<RecommendedWatcher> {
    let folders: HashSet<PathBuf> = files.iter().filter_map(|file| Some(file.parent()?.to_owned())).collect();
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
        let ours = |event: &Event| event.need_rescan() || event.paths.iter().any(|path| files.contains(path));
        if event.is_ok_and(|event| !event.kind.is_access() && ours(&event)) {
            changed.notify_one();
        }
    })?;
    for folder in folders.iter().filter(|folder| folder.is_dir()) {
        watcher.watch(folder, RecursiveMode::NonRecursive)?;
    }
    Ok(watcher)
}

//! Notification of changes in a folder.
//!
//! There is one watcher for all folders, because the system allows only few watchers. Its events can be lost, so
//! callers also poll the folder. Without a watcher they poll it more often.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;

/// Maximum time between two reads of a folder with a watcher.
const WATCHED_POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Maximum time between two reads of a folder without a watcher.
const UNWATCHED_POLL_INTERVAL: Duration = Duration::from_millis(250);

#[derive(Debug, Clone)]
pub struct Watch {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Watcher; `None` if the system could not create one.
    watcher: Mutex<Option<RecommendedWatcher>>,
    folders: Arc<Mutex<Folders>>,
}

type Folders = HashMap<PathBuf, Arc<Notify>>;

/// A folder that is watched until this value is dropped.
#[derive(Debug)]
pub struct FolderWatch {
    shared: Arc<Shared>,
    folder: PathBuf,
    changed: Arc<Notify>,
    poll_interval: Duration,
}

impl Watch {
    pub fn new() -> Self {
        let folders = Arc::<Mutex<Folders>>::default();
        let known = Arc::clone(&folders);
        let watcher = notify::recommended_watcher(move |event| notify_changed(&lock(&known), event)).ok();
        Self { shared: Arc::new(Shared { watcher: Mutex::new(watcher), folders }) }
    }

    /// Watches a folder from now on. The caller has to read the folder once after this call. A second call for the same
    /// folder replaces the first.
    pub fn folder(&self, folder: &Path) -> FolderWatch {
        let changed = Arc::new(Notify::new());
        lock(&self.shared.folders).insert(folder.to_owned(), Arc::clone(&changed));
        let mut watcher = lock(&self.shared.watcher);
        let registered = watcher.as_mut().map(|watcher| watcher.watch(folder, RecursiveMode::NonRecursive));
        FolderWatch {
            shared: Arc::clone(&self.shared),
            folder: folder.to_owned(),
            changed,
            poll_interval: if matches!(registered, Some(Ok(()))) {
                WATCHED_POLL_INTERVAL
            } else {
                UNWATCHED_POLL_INTERVAL
            },
        }
    }
}

impl Default for Watch {
    fn default() -> Self {
        Self::new()
    }
}

impl FolderWatch {
    /// Waits until the folder has changed since the last call, or until the poll interval has passed.
    pub async fn changed(&self) {
        // The caller reads the folder in both cases.
        let _ = tokio::time::timeout(self.poll_interval, self.changed.notified()).await;
    }
}

impl Drop for FolderWatch {
    fn drop(&mut self) {
        let mut folders = lock(&self.shared.folders);
        // A later call for the same folder has replaced this watch.
        if !folders.get(&self.folder).is_some_and(|changed| Arc::ptr_eq(changed, &self.changed)) {
            return;
        }
        folders.remove(&self.folder);
        drop(folders);
        if let Some(watcher) = lock(&self.shared.watcher).as_mut() {
            // If the folder was removed, its watch is already removed.
            let _ = watcher.unwatch(&self.folder);
        }
    }
}

fn notify_changed(folders: &Folders, event: notify::Result<Event>) {
    match event {
        // Reading also causes events.
        Ok(event) if event.kind.is_access() => {}
        Ok(event) if !event.need_rescan() => {
            let changed = event.paths.iter().filter_map(|path| folders.get(path.parent()?));
            changed.for_each(|changed| changed.notify_one());
        }
        _ => folders.values().for_each(|changed| changed.notify_one()),
    }
}

/// Locks a mutex, even after a panic of another thread, because a panic cannot leave these values inconsistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_write_wakes_only_the_watcher_of_its_folder() {
        let (busy, idle) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let watch = Watch::new();
        let (woken, asleep) = (watch.folder(busy.path()), watch.folder(idle.path()));
        std::fs::write(busy.path().join("stdout"), "hello").unwrap();
        tokio::select! {
            () = woken.changed.notified() => {}
            () = asleep.changed.notified() => panic!("woken by somebody else"),
        }
        drop(woken);
        assert_eq!(lock(&watch.shared.folders).keys().collect::<Vec<_>>(), [idle.path()]);
    }

    #[tokio::test]
    async fn the_drop_of_a_replaced_watch_keeps_the_new_one() {
        let folder = tempfile::tempdir().unwrap();
        let watch = Watch::new();
        let old = watch.folder(folder.path());
        let new = watch.folder(folder.path());
        drop(old);
        std::fs::write(folder.path().join("stdout"), "hello").unwrap();
        new.changed.notified().await;
    }

    #[test]
    fn an_unwatched_folder_is_polled_more_often() {
        let watch = Watch::new();
        let there = tempfile::tempdir().unwrap();
        assert_eq!(watch.folder(there.path()).poll_interval, WATCHED_POLL_INTERVAL);
        assert_eq!(watch.folder(&there.path().join("not there")).poll_interval, UNWATCHED_POLL_INTERVAL);
    }
}

//! Notification of changes in the folders of attempts.
//!
//! There is one inotify descriptor for all folders, because the system allows only few descriptors. Its events can be
//! lost, so callers also poll their folders. Without a descriptor, callers poll more often.
//!
//! The crate `notify` is not used here: it also reports when a file is opened or closed. An attempt causes about sixty
//! such events, each of which wakes a thread, and most of them are caused by the daemon itself.

use std::collections::HashMap;
use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// Maximum time between two reads of a folder with a watch.
const WATCHED_POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Maximum time between two reads of a folder without a watch.
const UNWATCHED_POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Size of the buffer for events. An event takes 16 bytes and its name, which has at most 256 bytes.
const EVENT_BUFFER_BYTES: usize = 4096;

/// Files that say nothing new about the state or the output of an attempt. The daemon writes some of them itself.
const IGNORED_FILES: [&[u8]; 7] =
    [b"index", b"lock", b"prompt", b"start.json", b"agent.json", b"cgroup", b"ending.reserved"];
/// Prefix of files that get their name when they are complete.
const TEMPORARY_PREFIX: &[u8] = b".tmp";

#[derive(Debug, Clone)]
pub struct Watch {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// `None` if the system allows no more descriptors.
    events: Option<Events>,
    folders: Mutex<Folders>,
}

#[derive(Debug)]
struct Events {
    inotify: Arc<OwnedFd>,
    /// The task that reads the events.
    reader: AbortHandle,
}

/// The watched folders by the number of their inotify watch.
type Folders = HashMap<i32, Arc<Notify>>;

/// A folder that is watched until this value is dropped.
#[derive(Debug)]
pub struct FolderWatch {
    shared: Arc<Shared>,
    /// Number of the inotify watch; `None` if there is none.
    number: Option<i32>,
    changed: Arc<Notify>,
}

impl Watch {
    /// Starts the task that reads the events. The caller has to be in an async runtime.
    pub fn new() -> Self {
        let shared = Arc::new_cyclic(|shared| Shared {
            events: Events::start(shared.clone()).ok(),
            folders: Mutex::default(),
        });
        Self { shared }
    }

    /// Watches a folder from now on. The caller has to read the folder once after this call. A second call for the same
    /// folder replaces the first.
    pub fn folder(&self, folder: &Path) -> FolderWatch {
        let changed = Arc::new(Notify::new());
        // The lock is held so that the drop of an earlier watch of the folder does not remove the new one.
        let mut folders = lock(&self.shared.folders);
        let kinds = WatchFlags::MODIFY | WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR;
        let events = self.shared.events.as_ref();
        let number = events.and_then(|events| inotify::add_watch(&events.inotify, folder, kinds).ok());
        if let Some(number) = number {
            folders.insert(number, Arc::clone(&changed));
        }
        FolderWatch { shared: Arc::clone(&self.shared), number, changed }
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
        let _ = tokio::time::timeout(self.poll_interval(), self.changed.notified()).await;
    }

    fn poll_interval(&self) -> Duration {
        if self.number.is_some() { WATCHED_POLL_INTERVAL } else { UNWATCHED_POLL_INTERVAL }
    }
}

impl Drop for FolderWatch {
    fn drop(&mut self) {
        let (Some(number), Some(events)) = (self.number, &self.shared.events) else { return };
        let mut folders = lock(&self.shared.folders);
        // A later watch of the same folder has the same number. If there is one, it has replaced this watch and stays.
        if folders.get(&number).is_some_and(|changed| Arc::ptr_eq(changed, &self.changed)) {
            folders.remove(&number);
            // If the folder was removed, its watch is already removed.
            let _ = inotify::remove_watch(&events.inotify, number);
        }
    }
}

impl Events {
    fn start(shared: Weak<Shared>) -> io::Result<Self> {
        let inotify = Arc::new(inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?);
        let reader = tokio::spawn(read_events(readable(Arc::clone(&inotify))?, shared)).abort_handle();
        Ok(Self { inotify, reader })
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// Registers a descriptor with the runtime.
#[expect(unsafe_code, reason = "Tokio has no safe function for a descriptor that it does not know")]
fn readable(inotify: Arc<OwnedFd>) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
    // SAFETY: the `AsyncFd` keeps the `Arc`, so its descriptor stays open and the same until the `AsyncFd` is dropped.
    let registered = unsafe { AsyncFd::register_with_interest(inotify, Interest::READABLE) };
    Ok(registered?)
}

async fn read_events(inotify: AsyncFd<Arc<OwnedFd>>, shared: Weak<Shared>) {
    let mut buffer = [MaybeUninit::uninit(); EVENT_BUFFER_BYTES];
    while let Ok(mut ready) = inotify.readable().await {
        let Some(shared) = shared.upgrade() else { return };
        let mut events = inotify::Reader::new(inotify.get_ref(), &mut buffer);
        loop {
            match events.next() {
                Ok(event) => {
                    let name = event.file_name().map_or(&b""[..], CStr::to_bytes);
                    notify_changed(&lock(&shared.folders), event.wd(), event.events(), name);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break ready.clear_ready(),
                // Callers still poll their folders.
                Err(_) => return,
            }
        }
    }
}

fn notify_changed(folders: &Folders, number: i32, event: ReadFlags, name: &[u8]) {
    if event.contains(ReadFlags::QUEUE_OVERFLOW) {
        for changed in folders.values() {
            changed.notify_one();
        }
    } else if !IGNORED_FILES.contains(&name)
        && !name.starts_with(TEMPORARY_PREFIX)
        && let Some(changed) = folders.get(&number)
    {
        changed.notify_one();
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
        assert_eq!(lock(&watch.shared.folders).keys().copied().collect::<Vec<_>>(), [asleep.number.unwrap()]);
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

    #[tokio::test]
    async fn files_that_the_daemon_writes_wake_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let watch = Watch::new();
        let woken = watch.folder(folder.path());
        for name in ["index", ".tmp1", "lock"] {
            std::fs::write(folder.path().join(name), "text").unwrap();
        }
        std::fs::read_dir(folder.path()).unwrap().for_each(drop);
        // The events are read in their order, so a later event of another folder ends the wait.
        let later = tempfile::tempdir().unwrap();
        let last = watch.folder(later.path());
        std::fs::write(later.path().join("stdout"), "hello").unwrap();
        tokio::select! {
            biased;
            () = woken.changed.notified() => panic!("woken by its own files"),
            () = last.changed.notified() => {}
        }
        std::fs::rename(folder.path().join(".tmp1"), folder.path().join("ending.json")).unwrap();
        woken.changed.notified().await;
    }

    #[tokio::test]
    async fn an_unwatched_folder_is_polled_more_often() {
        let watch = Watch::new();
        let there = tempfile::tempdir().unwrap();
        assert_eq!(watch.folder(there.path()).poll_interval(), WATCHED_POLL_INTERVAL);
        assert_eq!(watch.folder(&there.path().join("not there")).poll_interval(), UNWATCHED_POLL_INTERVAL);
    }
}

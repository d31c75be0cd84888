//! Notices changes in the files of a config.
//!
//! Folders are watched, not files, because an editor replaces the old file with a new file. If the path of a file
//! contains symbolic links, the folders of the links and of their targets are watched too: a deployment replaces a
//! link, and an editor changes the target. Nothing is polled: if the system has no watcher, or loses an event without
//! reporting the loss, the user has to call `cowhand reload`.

use std::collections::{HashMap, HashSet};
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

/// A file that can change the config, and its state just before the loader tried to read it. If the loader does not
/// read the file, the state is that at the time of the load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchedFile {
    path: PathBuf,
    /// `None` if the file did not exist.
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
    /// Watches the files of a config that was read. A change since the config was read is noticed, too.
    pub fn new(files: &[WatchedFile]) -> Self {
        let changed = Arc::new(Notify::new());
        let mut links = Links::default();
        let mut paths: HashSet<PathBuf> = files.iter().flat_map(|file| links.paths_to(&file.path)).collect();
        // The first file is beside the root file.
        if let Some(root) = files.first().and_then(|file| file.path.parent()) {
            paths.extend(files.iter().flat_map(|file| folders_between(root, &file.path)));
        }
        let watcher = watch(paths, Arc::clone(&changed));
        let watcher = watcher.inspect_err(|error| warn!("changed files will not be noticed: {error}")).ok();
        if watcher.is_some() && files.iter().any(WatchedFile::is_changed) {
            changed.notify_one();
        }
        Self { changed, is_changing: false, watcher }
    }

    /// Waits until a change is complete; without a watcher, forever. If the call is dropped, the next call waits for
    /// the same change.
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

/// Returns the folders below `root` on the way to a file. If one of them is removed, moved or made again, as by a
/// checkout of a branch, the watch of that folder is lost. Therefore such an event counts as a change too.
fn folders_between(root: &Path, file: &Path) -> Vec<PathBuf> {
    let folders = file.ancestors().skip(1).take_while(|folder| *folder != root);
    if file.starts_with(root) { folders.map(Path::to_owned).collect() } else { Vec::new() }
}

/// Largest number of symbolic links that are followed for a file; the limit of the system.
const MAX_LINKS: usize = 40;

/// The targets of the symbolic links that were read, by the paths of the links; `None` for a path that is not a link.
#[derive(Default)]
struct Links(HashMap<PathBuf, Option<PathBuf>>);

impl Links {
    /// Returns the path itself. For each link on the way to the file, also returns the path of the link, and the path
    /// of the file after this link is followed.
    fn paths_to(&mut self, path: &Path) -> Vec<PathBuf> {
        let mut paths = vec![path.to_owned()];
        let mut current = path.to_owned();
        for _ in 0..MAX_LINKS {
            let mut ancestors: Vec<&Path> = current.ancestors().collect();
            ancestors.reverse();
            let first = ancestors.into_iter().find_map(|part| Some((part.to_owned(), self.target(part)?)));
            let Some((link, target)) = first else { break };
            let rest = current.strip_prefix(&link).unwrap_or(Path::new(""));
            // Without this condition, the path of a link's target would end with a slash.
            let next = if rest.as_os_str().is_empty() { target } else { target.join(rest) };
            paths.extend([link, next.clone()]);
            current = next;
        }
        paths
    }

    /// Returns the path to which a link leads; `None` if the path is not a link.
    fn target(&mut self, path: &Path) -> Option<PathBuf> {
        let read = || Some(path.parent()?.join(fs::read_link(path).ok()?));
        self.0.entry(path.to_owned()).or_insert_with(read).clone()
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

    /// A link in a repository, and the chain of links with which Kubernetes shows a `ConfigMap`.
    #[tokio::test]
    async fn changes_behind_symbolic_links_are_noticed() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::TempDir::new().unwrap();
        let path = |name: &str| folder.path().join(name);
        for version in ["v1", "v2"] {
            fs::create_dir(path(version)).unwrap();
            fs::write(path(version).join("cowhand.yaml"), format!("# {version}")).unwrap();
        }
        symlink("v1", path("data")).unwrap();
        symlink("data/cowhand.yaml", path("cowhand.yaml")).unwrap();
        fs::create_dir(path("away")).unwrap();
        symlink("../cowhand.yaml", path("away/fleet.yaml")).unwrap();
        let mut watch = ConfigWatch::new(&[WatchedFile::new(path("away/fleet.yaml"))]);
        assert!(watch.change().now_or_never().is_none());
        fs::write(path("v1/cowhand.yaml"), "# edited").unwrap();
        watch.change().await;
        symlink("v2", path("data.new")).unwrap();
        fs::rename(path("data.new"), path("data")).unwrap();
        watch.change().await;
        fs::write(path("v2/other"), "").unwrap();
        assert!(watch.change().now_or_never().is_none());
        symlink(path("loop"), path("loop")).unwrap();
        assert!(Links::default().paths_to(&path("loop")).len() <= 2 * MAX_LINKS + 1);
    }

    #[tokio::test]
    async fn a_folder_that_is_made_again_is_noticed() {
        let folder = tempfile::TempDir::new().unwrap();
        let (root, agents) = (folder.path().join("cowhand.yaml"), folder.path().join("more/agents"));
        fs::create_dir_all(&agents).unwrap();
        fs::write(agents.join("b.yaml"), "name: b").unwrap();
        fs::write(&root, "agents: [{path: more/agents/b.yaml}]").unwrap();
        let watch = || ConfigWatch::new(&crate::config::load(&root).watched);
        let mut before = watch();
        assert!(before.change().now_or_never().is_none());
        fs::rename(folder.path().join("more"), folder.path().join("gone")).unwrap();
        before.change().await;
        let mut without = watch();
        assert!(without.change().now_or_never().is_none());
        fs::rename(folder.path().join("gone"), folder.path().join("more")).unwrap();
        without.change().await;
        let mut again = watch();
        fs::write(agents.join("b.yaml"), "name: c").unwrap();
        again.change().await;
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

//! The folder of a `files` source on disk: file names, bounded reads, and one writer at a time.

use std::fs::{File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use cowhand_system::beneath::{NotOpened, Root};
use cowhand_system::fault;
use cowhand_system::remove::missing_is_ok;

/// Maximum size of an item that can be listed or claimed.
pub(super) const MAX_ITEM_BYTES: u64 = 1 << 20;
/// Maximum size of an item after its claim. This size is larger because reports are appended, and a claimed item must
/// always be readable.
pub(super) const MAX_CLAIMED_ITEM_BYTES: u64 = 2 * MAX_ITEM_BYTES;

/// Name of the file that is written before it replaces an item. One name is enough because there is one writer at a
/// time; a file left by a crashed writer is removed first.
const TEMPORARY_FILE: &str = ".cowhand.new";

/// Name of a file that explains the folder to people and is not an item.
const README: &str = "README.md";

#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// Directories in which sandboxed agents may write. A link in such a directory is not followed, because an agent
    /// may have made it.
    writable: Vec<PathBuf>,
}

#[derive(Debug)]
pub(super) struct Content {
    pub(super) text: String,
    pub(super) metadata: Metadata,
}

#[derive(Debug)]
pub(super) enum Unreadable {
    Missing,
    /// Reason why the file cannot be used; it continues the sentence "the file …".
    Unusable(String),
    Failed(io::Error),
}

impl Folder {
    pub(super) fn new(path: PathBuf, writable: Vec<PathBuf>) -> Self {
        Self { path: std::path::absolute(&path).unwrap_or(path), writable }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn root(&self) -> Result<Root, NotOpened> {
        Root::configured(&self.path, &self.writable)
    }

    pub(super) fn file(&self, stem: &str) -> PathBuf {
        self.path.join(name(stem))
    }

    /// Returns the names of all Markdown files that are not hidden, except `README.md`, without `.md`. Bytes of a name
    /// that are not UTF-8 are replaced.
    pub(super) fn stems(&self) -> Result<Vec<String>, NotOpened> {
        let mut stems = Vec::new();
        for (name, _) in self.root()?.entries()? {
            let name = name.to_string_lossy();
            if !name.starts_with('.') && name != README {
                stems.extend(name.strip_suffix(".md").map(str::to_owned));
            }
        }
        Ok(stems)
    }

    /// Reads a file of at most `max_bytes` bytes, follows no link, and does not block on a pipe. If `to_change` is set,
    /// the file has to be writable.
    pub(super) fn read(&self, stem: &str, max_bytes: u64, to_change: bool) -> Result<Content, Unreadable> {
        let root = self.root().map_err(|error| Unreadable::Failed(error.into()))?;
        let name = name(stem);
        // Opening for writing checks the permissions of the file. Replacing the file checks only the permissions of the
        // folder.
        let file = if to_change { root.file_to_change(&name) } else { root.file(&name) };
        let file = file.map_err(|error| match error {
            NotOpened::Link => Unreadable::Unusable("is a symbolic link, which is not followed".to_owned()),
            NotOpened::Missing => Unreadable::Missing,
            NotOpened::NotRegular => Unreadable::Unusable("is not a plain file".to_owned()),
            error => Unreadable::Failed(error.into()),
        })?;
        let metadata = file.metadata().map_err(Unreadable::Failed)?;
        let mut bytes = Vec::new();
        file.take(max_bytes + 1).read_to_end(&mut bytes).map_err(Unreadable::Failed)?;
        if bytes.len() as u64 > max_bytes {
            return Err(Unreadable::Unusable(format!("is larger than {} MiB", max_bytes >> 20)));
        }
        let text =
            String::from_utf8(bytes).map_err(|_| Unreadable::Unusable("is not UTF-8 text".to_owned()))?;
        Ok(Content { text, metadata })
    }

    /// Returns the version of a file, without reading it; `None` if it cannot be opened.
    pub(super) fn version(&self, stem: &str) -> Option<FileVersion> {
        let file = self.root().ok()?.file(&name(stem)).ok()?;
        file.metadata().ok().map(|metadata| version(&metadata))
    }

    /// Waits for the current writer, and locks the folder. The lock is on the folder itself, so it needs no file. The
    /// kernel releases the lock however its holder ends.
    pub(super) fn lock(&self) -> io::Result<Lock> {
        let root = self.root()?;
        let held = root.handle()?;
        held.lock()?;
        Ok(Lock { root, held })
    }
}

fn name(stem: &str) -> PathBuf {
    PathBuf::from(format!("{stem}.md"))
}

#[derive(Debug)]
pub(super) struct Lock {
    root: Root,
    held: File,
}

impl Lock {
    /// Replaces a file as a whole and keeps its mode and, if possible, its owner. If the file has changed since it was
    /// read, leaves the file as it is and returns false. Such changes happen, because people and editors take no lock.
    pub(super) fn replace(&self, stem: &str, before: &Metadata, text: &str) -> io::Result<bool> {
        missing_is_ok(self.root.remove(TEMPORARY_FILE))?;
        let mut file = self.root.create_new(TEMPORARY_FILE)?;
        file.write_all(text.as_bytes())?;
        file.set_permissions(std::fs::Permissions::from_mode(before.mode() & 0o7777))?;
        // Only root can change the owner. For other users the owner is the same or cannot be kept.
        _ = fchown(&file, Some(before.uid()), Some(before.gid()));
        file.sync_all()?;
        fault::point("work_file_written");
        let now = self.root.file(&name(stem)).ok().and_then(|file| file.metadata().ok());
        if now.is_none_or(|now| version(&now) != version(before)) {
            self.root.remove(TEMPORARY_FILE)?;
            return Ok(false);
        }
        self.root.rename(TEMPORARY_FILE, &format!("{stem}.md"))?;
        fault::point("work_file_replaced");
        self.held.sync_all()?;
        Ok(true)
    }
}

/// Attributes of a file. At least one of them changes with each change of the file. Times are seconds and nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileVersion {
    inode: u64,
    size: u64,
    modified: (i64, i64),
    pub(super) changed: (i64, i64),
}

fn version(metadata: &Metadata) -> FileVersion {
    FileVersion {
        inode: metadata.ino(),
        size: metadata.size(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
        changed: (metadata.ctime(), metadata.ctime_nsec()),
    }
}

/// Returns the modification time in whole microseconds. A time out of range counts as the Unix epoch.
pub(super) fn modified(metadata: &Metadata) -> Timestamp {
    let microseconds =
        metadata.mtime().saturating_mul(1_000_000).saturating_add(metadata.mtime_nsec() / 1_000);
    Timestamp::from_microsecond(microseconds).unwrap_or(Timestamp::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_changed_meanwhile_is_not_overwritten() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::new(place.path().to_owned(), Vec::new());
        let save = |text: &str| std::fs::write(folder.file("a"), text).unwrap();
        let lock = folder.lock().unwrap();
        save("one");
        let content = folder.read("a", MAX_ITEM_BYTES, true).unwrap();
        save("two");
        assert!(!lock.replace("a", &content.metadata, "ours").unwrap());
        assert_eq!(std::fs::read_to_string(folder.file("a")).unwrap(), "two");
        std::fs::remove_file(folder.file("a")).unwrap();
        assert!(!lock.replace("a", &content.metadata, "ours").unwrap());
        assert_eq!(place.path().read_dir().unwrap().count(), 0, "no temporary file remains");
    }

    #[test]
    fn replacing_a_file_keeps_its_mode() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::new(place.path().to_owned(), Vec::new());
        std::fs::write(folder.file("a"), "one").unwrap();
        std::fs::set_permissions(folder.file("a"), std::fs::Permissions::from_mode(0o640)).unwrap();
        let content = folder.read("a", MAX_ITEM_BYTES, true).unwrap();
        assert!(folder.lock().unwrap().replace("a", &content.metadata, "two").unwrap());
        let after = folder.read("a", MAX_ITEM_BYTES, true).unwrap();
        assert_eq!((after.text.as_str(), after.metadata.mode() & 0o777), ("two", 0o640));
    }
}

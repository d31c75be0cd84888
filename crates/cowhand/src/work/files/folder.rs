//! The folder on disk: names, bounded reading, and one writer at a time.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use crate::fault;
use crate::gone::gone;

/// The largest file that is an item.
pub(super) const MOST_BYTES: u64 = 1 << 20;
/// Reports are added to it, and a claimed item must always be readable.
pub(super) const MOST_BYTES_CLAIMED: u64 = 2 * MOST_BYTES;

/// There is one writer at a time, so one name is enough, and a dead writer's file is in nobody's way.
const NEW_FILE: &str = ".cowhand.new";

/// Explains the folder to people.
const README: &str = "README.md";

#[derive(Debug)]
pub(super) struct Folder(PathBuf);

#[derive(Debug)]
pub(super) struct Content {
    pub(super) text: String,
    pub(super) metadata: Metadata,
}

#[derive(Debug)]
pub(super) enum Unreadable {
    Gone,
    /// What is wrong with the file, after "the file …".
    Unusable(String),
    Failed(io::Error),
}

impl Folder {
    pub(super) fn new(path: PathBuf) -> Self {
        Self(std::path::absolute(&path).unwrap_or(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn file(&self, stem: &str) -> PathBuf {
        self.0.join(format!("{stem}.md"))
    }

    /// The names of all Markdown files that are not hidden, without `.md`; one that is no text has gaps in it.
    pub(super) fn stems(&self) -> io::Result<Vec<String>> {
        let mut stems = Vec::new();
        for entry in self.0.read_dir()? {
            let name = entry?.file_name();
            let name = name.to_string_lossy();
            if !name.starts_with('.') && name != README {
                stems.extend(name.strip_suffix(".md").map(str::to_owned));
            }
        }
        Ok(stems)
    }

    /// Reads no more than `most` bytes, follows no link, and does not wait for a pipe.
    pub(super) fn read(&self, stem: &str, most: u64, to_change: bool) -> Result<Content, Unreadable> {
        let mut options = OpenOptions::new();
        // Whether we may write is the file's own word; replacing it only asks the folder.
        options.read(true).write(to_change).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let file = options.open(self.file(stem)).map_err(|error| match error.raw_os_error() {
            Some(libc::ELOOP) => Unreadable::Unusable("is a symbolic link, which is not followed".to_owned()),
            Some(libc::ENOENT) => Unreadable::Gone,
            Some(libc::EISDIR | libc::ENXIO) => Unreadable::Unusable("is not a plain file".to_owned()),
            _ => Unreadable::Failed(error),
        })?;
        let metadata = file.metadata().map_err(Unreadable::Failed)?;
        if !metadata.is_file() {
            return Err(Unreadable::Unusable("is not a plain file".to_owned()));
        }
        let mut bytes = Vec::new();
        file.take(most + 1).read_to_end(&mut bytes).map_err(Unreadable::Failed)?;
        if bytes.len() as u64 > most {
            return Err(Unreadable::Unusable(format!("is larger than {} MiB", most >> 20)));
        }
        let text =
            String::from_utf8(bytes).map_err(|_| Unreadable::Unusable("is not UTF-8 text".to_owned()))?;
        Ok(Content { text, metadata })
    }

    /// Waits for whoever writes now. The folder itself is what is locked, so no file of ours lies around in it; the
    /// kernel lets go of the lock however its holder ends.
    pub(super) fn lock(&self) -> io::Result<Lock<'_>> {
        let held = File::open(&self.0)?;
        held.lock()?;
        Ok(Lock { folder: self, held })
    }
}

#[derive(Debug)]
pub(super) struct Lock<'a> {
    folder: &'a Folder,
    held: File,
}

impl Lock<'_> {
    /// Replaces a file as a whole, with its mode and owner; false if it is not the one that was read any more, because
    /// people and their editors ask for no lock.
    pub(super) fn replace(&self, stem: &str, before: &Metadata, text: &str) -> io::Result<bool> {
        let (path, new) = (self.folder.file(stem), self.folder.path().join(NEW_FILE));
        gone(std::fs::remove_file(&new))?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(text.as_bytes())?;
        file.set_permissions(std::fs::Permissions::from_mode(before.mode() & 0o7777))?;
        // Only root may give a file away; for everybody else the owner is the same, or cannot be kept.
        _ = fchown(&file, Some(before.uid()), Some(before.gid()));
        file.sync_all()?;
        fault::place("work_file_written");
        let unchanged = std::fs::symlink_metadata(&path).is_ok_and(|now| version(&now) == version(before));
        if !unchanged {
            std::fs::remove_file(&new)?;
            return Ok(false);
        }
        std::fs::rename(&new, &path)?;
        fault::place("work_file_replaced");
        self.held.sync_all()?;
        Ok(true)
    }
}

fn version(metadata: &Metadata) -> (u64, u64, i64, i64, i64, i64) {
    let (modified, changed) = (metadata.mtime(), metadata.ctime());
    (metadata.ino(), metadata.size(), modified, metadata.mtime_nsec(), changed, metadata.ctime_nsec())
}

/// Whole microseconds, as everywhere; a time that no clock shows counts as the earliest.
pub(super) fn modified(metadata: &Metadata) -> Timestamp {
    let microseconds =
        metadata.mtime().saturating_mul(1_000_000).saturating_add(metadata.mtime_nsec() / 1_000);
    Timestamp::from_microsecond(microseconds).unwrap_or(Timestamp::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_saved_meanwhile_is_not_overwritten() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::new(place.path().to_owned());
        let save = |text: &str| std::fs::write(folder.file("a"), text).unwrap();
        let lock = folder.lock().unwrap();
        save("one");
        let content = folder.read("a", MOST_BYTES, true).unwrap();
        save("two");
        assert!(!lock.replace("a", &content.metadata, "ours").unwrap());
        assert_eq!(std::fs::read_to_string(folder.file("a")).unwrap(), "two");
        std::fs::remove_file(folder.file("a")).unwrap();
        assert!(!lock.replace("a", &content.metadata, "ours").unwrap());
        assert_eq!(place.path().read_dir().unwrap().count(), 0, "and nothing of ours stays");
    }

    #[test]
    fn the_mode_stays() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::new(place.path().to_owned());
        std::fs::write(folder.file("a"), "one").unwrap();
        std::fs::set_permissions(folder.file("a"), std::fs::Permissions::from_mode(0o640)).unwrap();
        let content = folder.read("a", MOST_BYTES, true).unwrap();
        assert!(folder.lock().unwrap().replace("a", &content.metadata, "two").unwrap());
        let after = folder.read("a", MOST_BYTES, true).unwrap();
        assert_eq!((after.text.as_str(), after.metadata.mode() & 0o777), ("two", 0o640));
    }
}

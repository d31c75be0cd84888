//! The file of an SQLite store: its creation, and the check that its path still leads to the open file.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::error::{DriverError, StoreError};
use super::sqlite::{FileUse, SqliteConnection};
use cowhand_system::closed::{advice, closed_folder};
use cowhand_system::disk::DiskProblem;

/// Identity of the database file and its write-ahead log when they were opened. No other file gets their device and
/// inode while they are open.
#[derive(Debug, Clone)]
pub(crate) struct StoreFile {
    files: Vec<(PathBuf, FileId)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    fn of(path: &Path) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        Ok(Self { device: metadata.dev(), inode: metadata.ino() })
    }
}

impl StoreFile {
    /// Records the files of a store that has just been opened.
    pub(crate) fn opened(path: &Path) -> io::Result<Self> {
        let mut files = Vec::new();
        for path in [path.to_owned(), beside(path, "-wal")] {
            let id = FileId::of(&path)?;
            files.push((path, id));
        }
        Ok(Self { files })
    }

    /// Returns the path of the database.
    pub(crate) fn path(&self) -> &Path {
        self.files.first().map_or(Path::new(""), |(path, _)| path)
    }

    /// Returns the error for a full or read-only disk, if the disk of the database is the cause.
    pub(crate) fn disk_error(&self, error: &DriverError) -> Option<StoreError> {
        disk_error(&self.files.first()?.0, error)
    }

    /// Fails if the files were removed or replaced, so that writes would be lost after a restart, or if that cannot be
    /// determined.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        for (path, opened) in &self.files {
            let how = match FileId::of(path) {
                Ok(current) if current == *opened => continue,
                Ok(_) => "was replaced by another file".to_owned(),
                Err(error) if error.kind() == io::ErrorKind::NotFound => "was removed".to_owned(),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    let folder = closed_folder(path);
                    let advice = folder.map_or_else(|| error.to_string(), |folder| advice(&folder));
                    return Err(StoreError::PermissionDenied {
                        location: path.display().to_string(),
                        advice,
                    });
                }
                Err(error) => format!("cannot be found ({error})"),
            };
            return Err(StoreError::FileChanged { location: path.display().to_string(), how });
        }
        Ok(())
    }
}

/// Returns the error for a full or read-only disk of a file, if the disk is the cause. To find out, a test file is
/// written into the folder of the file, because SQLite reports only that a write failed.
pub(crate) fn disk_error(file: &Path, error: &DriverError) -> Option<StoreError> {
    if !error.may_be_disk() {
        return None;
    }
    let folder = folder_of(file);
    let problem = DiskProblem::find(folder)?;
    Some(StoreError::Disk { problem, folder: folder.display().to_string() })
}

/// Returns the folder of a file; `.` if the path names no folder.
pub(crate) fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Appends a suffix to the file name: `store.db-wal`, `store.db.new`.
pub fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Writes the content of a database's write-ahead log into the database, and removes the log. No process may use the
/// database. Returns whether the log is now missing or empty.
pub fn fold_log(path: &Path) -> bool {
    let Ok(mut connection) = SqliteConnection::open(path, FileUse::Durable) else { return false };
    let folded = connection.command("pragma wal_checkpoint(truncate)").is_ok();
    // SQLite removes the log when the last connection closes.
    let closed = connection.close().is_ok();
    let is_empty = fs::metadata(beside(path, "-wal")).map_or(true, |log| log.len() == 0);
    folded && closed && is_empty
}

/// Removes a database, its write-ahead log and the index of that log (`-shm`), if they exist.
pub fn remove(path: &Path) -> io::Result<()> {
    for suffix in ["", "-wal", "-shm"] {
        match fs::remove_file(beside(path, suffix)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Creates an empty file that only the owner can access, after removing the files that an earlier try left. SQLite
/// gives its log the same mode.
pub fn create(path: &Path) -> io::Result<()> {
    remove(path)?;
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map(drop)
}

/// Renames a complete database to its final path, and syncs the file and its folder.
pub fn persist(from: &Path, to: &Path) -> io::Result<()> {
    fs::File::open(from)?.sync_all()?;
    fs::rename(from, to)?;
    fs::File::open(folder_of(to))?.sync_all()
}

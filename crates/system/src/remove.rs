//! Removal of files that may be missing.

use std::fs;
use std::io;
use std::path::Path;

/// Checks whether nothing is at this path. A link to a missing file counts as missing. A path that cannot be checked,
/// for example because of the mode of a folder above it, counts as existing.
pub fn is_missing(path: &Path) -> bool {
    let kind = fs::metadata(path).err().map(|error| error.kind());
    matches!(kind, Some(io::ErrorKind::NotFound | io::ErrorKind::NotADirectory))
}

/// Ignores the error of a missing file.
pub fn absent_is_ok(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Maximum number of tries to remove a folder in which other processes still write.
const MAX_REMOVE_TRIES: usize = 1_000;

/// Removes a folder with everything in it, without following links. Another thread or an ending keeper may create a
/// file meanwhile; that is removed as well.
pub fn remove_folder(folder: &Path) -> io::Result<()> {
    let mut removed = fs::remove_dir_all(folder);
    for _ in 1..MAX_REMOVE_TRIES {
        match removed {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                std::thread::yield_now();
                removed = fs::remove_dir_all(folder);
            }
            removed => return absent_is_ok(removed),
        }
    }
    absent_is_ok(removed)
}

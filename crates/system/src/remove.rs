//! What was not there is as good as removed.

use std::fs;
use std::io;
use std::path::Path;

/// Says whether nothing is at this path. What cannot be looked at now, for example because a folder above it has another
/// mode, is not gone.
pub fn is_gone(path: &Path) -> bool {
    let kind = fs::metadata(path).err().map(|error| error.kind());
    matches!(kind, Some(io::ErrorKind::NotFound | io::ErrorKind::NotADirectory))
}

/// Any other trouble with a removal stays one.
pub fn absent_is_ok(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Nobody makes files for long in a folder that is being removed.
const MAX_REMOVE_TRIES: usize = 1_000;

/// Removes a folder with all that is in it, links as links. While it is removed, another thread that looks at the same job
/// may make a file in it, or a dying keeper may write its last words: what came in between is removed, too.
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

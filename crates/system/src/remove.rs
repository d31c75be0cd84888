//! Removal of files and folders that may be missing.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::tree::{self, Next, Purpose, TreeStep};

/// Checks whether nothing is at this path. A link to a missing file counts as missing. A path that cannot be checked,
/// for example because of the mode of a folder above it, counts as existing.
pub fn is_missing(path: &Path) -> bool {
    let kind = fs::metadata(path).err().map(|error| error.kind());
    matches!(kind, Some(io::ErrorKind::NotFound | io::ErrorKind::NotADirectory))
}

/// Ignores the error of a missing file.
pub fn missing_is_ok(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Time for which the removal of a folder is repeated while other processes still write in it.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(10);
const REMOVE_RETRY_PAUSE: Duration = Duration::from_millis(5);

/// Removes a file, or a folder with everything in it, without following links. A missing file or folder is not an
/// error. Another thread or an ending process may create files during the removal; for up to `REMOVE_TIMEOUT`, these
/// files are removed as well. If the mode of a folder of this user denies access, the mode is changed.
pub fn remove_folder(folder: &Path) -> io::Result<()> {
    let started = Instant::now();
    loop {
        match remove_once(folder) {
            Err(error)
                if error.kind() == io::ErrorKind::DirectoryNotEmpty && started.elapsed() < REMOVE_TIMEOUT =>
            {
                std::thread::sleep(REMOVE_RETRY_PAUSE);
            }
            removed => return removed,
        }
    }
}

/// Removes as much as possible, and returns the first error.
fn remove_once(folder: &Path) -> io::Result<()> {
    let mut result = Ok(());
    let walked = tree::walk(folder, &mut |step| {
        let removed = match step {
            TreeStep::Folder(found) => {
                // If the folder stays inaccessible, the next step is `TreeStep::Closed`.
                found.make_accessible(Purpose::Remove).ok();
                Ok(())
            }
            TreeStep::File(found) | TreeStep::Left(found) => found.remove(),
            // An empty folder can be removed without being listed.
            TreeStep::Closed(found, error) => {
                found.remove().map_err(|_| io::Error::new(error.kind(), error.to_string()))
            }
        };
        if result.is_ok() {
            result = removed;
        }
        Ok(Next::Continue)
    });
    result.and(walked)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::tree::size;

    /// Creates folders below each other, until their path is longer than any call accepts.
    fn make_deep(top: &Path, levels: usize) {
        use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut at = openat(CWD, top, flags, Mode::empty()).unwrap();
        let name = "n".repeat(200);
        for _ in 0..levels {
            mkdirat(&at, &name, Mode::RWXU).unwrap();
            at = openat(&at, &name, flags, Mode::empty()).unwrap();
        }
        let leaf = openat(&at, "leaf", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).unwrap();
        rustix::io::write(&leaf, b"seven\n\n").unwrap();
    }

    #[test]
    fn deep_and_closed_folders_are_measured_and_removed() {
        let place = tempfile::tempdir().unwrap();
        let (top, outside) = (place.path().join("top"), place.path().join("outside"));
        fs::create_dir_all(top.join("closed/inner")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("file"), "stays").unwrap();
        fs::write(top.join("closed/inner/file"), "12345").unwrap();
        make_deep(&top, 500);
        symlink(&outside, top.join("link")).unwrap();
        let link = outside.as_os_str().len() as u64;
        assert_eq!(size(&top).unwrap(), 7 + 5 + link);
        fs::create_dir_all(top.join("fixed/inner")).unwrap();
        for (folder, mode) in [("closed/inner", 0o000), ("closed", 0o000), ("fixed", 0o500)] {
            fs::set_permissions(top.join(folder), fs::Permissions::from_mode(mode)).unwrap();
        }
        size(&top).unwrap();
        remove_folder(&top).unwrap();
        remove_folder(&top).unwrap();
        assert!(is_missing(&top) && outside.join("file").exists());
        assert_eq!(size(&top).unwrap(), 0);
    }

    #[test]
    fn a_folder_in_which_another_thread_still_writes_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let top = place.path().join("top");
        fs::create_dir_all(top.join("inner")).unwrap();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for number in 0..2_000 {
                    // The folder may be gone.
                    fs::write(top.join(format!("inner/{number}")), "").ok();
                    fs::write(top.join(format!("{number}")), "").ok();
                }
            });
            remove_folder(&top).unwrap();
            writer.join().unwrap();
        });
        assert!(is_missing(&top));
    }
}

//! Opens files that serve as locks.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens a lock file for writing, with these options. On a disk that has become read-only, an existing file is opened
/// for reading, so that a lock can still be checked there. On other disks the file is never opened for reading only,
/// because some network disks can lock only files that are open for writing.
pub fn open(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    match options.write(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
            OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(path)
        }
        opened => opened,
    }
}

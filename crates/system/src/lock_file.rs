//! Opens files that serve as locks.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::named_file::check_regular;

/// Opens a lock file for writing, with these options, without following a link. On a disk that has become read-only, an
/// existing file is opened for reading, so that a lock can still be checked there. On other disks the file is never
/// opened for reading only, because some network disks can lock only files that are open for writing. Fails without
/// blocking if a pipe or another special file is at this path.
pub fn open(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = match options.write(true).custom_flags(flags).open(path) {
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
            OpenOptions::new().read(true).custom_flags(flags).open(path)?
        }
        // The error for a pipe that nobody reads does not say that the file is a pipe.
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => {
            return Err(check_regular(&fs::symlink_metadata(path)?).err().unwrap_or(error));
        }
        opened => opened?,
    };
    check_regular(&file.metadata()?)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode};

    use super::*;

    #[test]
    fn pipes_are_refused_without_blocking() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("lock");
        rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        for options in [&mut OpenOptions::new(), OpenOptions::new().read(true)] {
            let error = open(options, &pipe).unwrap_err().to_string();
            assert_eq!(error, "it is a pipe, not a regular file");
        }
        fs::remove_file(&pipe).unwrap();
        assert!(open(OpenOptions::new().create(true), &pipe).is_ok());
    }
}

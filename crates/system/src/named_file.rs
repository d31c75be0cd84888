//! Opens regular files by their path: files that a person names in the config, in a variable or on the command line, and
//! files of the state folder.
//!
//! The path may be a symbolic link, as the paths of certbot's files are. The file must be regular: opening a named pipe
//! would block, and reading a device may never end. Files in folders where an agent may write are opened with
//! `beneath`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Maximum size of a file with a certificate, a chain of certificates, or a private key.
pub const MAX_KEY_BYTES: u64 = 1 << 20;

/// Opens a regular file for reading, without blocking.
pub fn open(path: &Path) -> io::Result<File> {
    // Opening a device can have side effects, so the type of the file is checked first.
    check_regular(&fs::metadata(path)?)?;
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    // Another file may have replaced it meanwhile.
    check_regular(&file.metadata()?)?;
    Ok(file)
}

/// Reads a regular file if it has at most `max_bytes` bytes.
pub fn read(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    let too_large =
        || io::Error::new(io::ErrorKind::FileTooLarge, format!("larger than {}", in_words(max_bytes)));
    let file = open(path)?;
    let length = file.metadata()?.len();
    if length > max_bytes {
        return Err(too_large());
    }
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or_default());
    // The file may grow meanwhile.
    file.take(max_bytes + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max_bytes { Err(too_large()) } else { Ok(bytes) }
}

/// Reads a regular file of UTF-8 text if it has at most `max_bytes` bytes.
pub fn read_text(path: &Path, max_bytes: u64) -> io::Result<String> {
    String::from_utf8(read(path, max_bytes)?)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.utf8_error()))
}

fn in_words(bytes: u64) -> String {
    if bytes.is_multiple_of(1 << 20) { format!("{} MiB", bytes >> 20) } else { format!("{bytes} bytes") }
}

/// Fails with the kind of the file if it is not a regular file.
pub(crate) fn check_regular(metadata: &fs::Metadata) -> io::Result<()> {
    let kind = metadata.file_type();
    let what = if kind.is_file() {
        return Ok(());
    } else if kind.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    } else if kind.is_fifo() {
        "a pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("it is {what}, not a regular file")))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use rustix::fs::{CWD, FileType, Mode};

    use super::*;

    #[test]
    fn only_regular_files_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "text").unwrap();
        fs::write(at("long"), "longer").unwrap();
        fs::write(at("bytes"), b"\xff").unwrap();
        symlink("file", at("link")).unwrap();
        symlink("pipe", at("link-to-pipe")).unwrap();
        rustix::fs::mknodat(CWD, at("pipe"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        drop(UnixListener::bind(at("socket")).unwrap());
        for (path, expected) in [
            (at("file"), "text"),
            (at("link"), "text"),
            (at("long"), "larger than 5 bytes"),
            (at("bytes"), "invalid utf-8 sequence of 1 bytes from index 0"),
            (at("pipe"), "it is a pipe, not a regular file"),
            (at("link-to-pipe"), "it is a pipe, not a regular file"),
            (at("socket"), "it is a socket, not a regular file"),
            ("/dev/zero".into(), "it is a device, not a regular file"),
            (folder.path().to_owned(), "is a directory"),
            (at("nothing"), "No such file or directory (os error 2)"),
        ] {
            let text = read_text(&path, 5).unwrap_or_else(|error| error.to_string());
            assert_eq!(text, expected, "{}", path.display());
        }
    }
}

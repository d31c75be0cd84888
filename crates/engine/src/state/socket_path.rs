//! The path of sockets if the path of the state folder is too long for the address of a socket.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::PathBuf;

use uuid::Uuid;

use super::StateFolder;

/// Longest path of a socket that every system accepts, in bytes.
pub const MAX_SOCKET_PATH: usize = 100;

/// Returns a short path in a folder of this user. The same state folder always gets the same path, unless
/// `XDG_RUNTIME_DIR` changes.
pub fn short_socket_path(state: &StateFolder) -> io::Result<PathBuf> {
    let me = rustix::process::getuid().as_raw();
    let folder = match std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty()) {
        Some(folder) => PathBuf::from(folder).join("cowhand"),
        None => PathBuf::from(format!("/tmp/cowhand-{me}")),
    };
    DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
    // Any user can create this folder in /tmp first.
    let found = fs::symlink_metadata(&folder)?;
    if !found.is_dir() || found.uid() != me || found.mode() & 0o077 != 0 {
        let message =
            format!("{} is not a folder to which only this user has access; remove it", folder.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    let path = fs::canonicalize(state.path())?;
    let name = Uuid::new_v5(&Uuid::NAMESPACE_URL, path.as_os_str().as_encoded_bytes());
    Ok(folder.join(name.simple().to_string()))
}

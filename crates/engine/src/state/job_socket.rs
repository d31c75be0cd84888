//! The folder of the job socket. It contains only that socket, so that a sandbox can mount the folder. The folder is
//! mounted instead of the socket, so that the socket of the next daemon is also visible in the sandbox.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

use super::{MAX_SOCKET_PATH, StateFolder, short_socket_path};
use cowhand_system::remove::missing_is_ok;

const FOLDER: &str = "talk";
const SOCKET: &str = "job.sock";

/// Returns the path of the job socket.
pub fn job_socket(state: &StateFolder) -> io::Result<PathBuf> {
    Ok(job_folder(state)?.join(SOCKET))
}

/// Returns the folder of the job socket, and creates it if it is missing. If the path in the state folder is too long
/// for a socket, the folder is elsewhere, and a link in the state folder points to it. The path stays the same as long
/// as the folder exists and only this user has access to it, because running agents use the path.
pub fn job_folder(state: &StateFolder) -> io::Result<PathBuf> {
    let linked = std::path::absolute(state.path())?.join(FOLDER);
    if linked.join(SOCKET).as_os_str().len() <= MAX_SOCKET_PATH {
        make(&linked)?;
        return Ok(linked);
    }
    if let Ok(real) = fs::read_link(&linked)
        && is_ours(&real)
    {
        return Ok(real);
    }
    let mut real = short_socket_path(state)?.into_os_string();
    real.push("-talk");
    let real = PathBuf::from(real);
    make(&real)?;
    missing_is_ok(fs::remove_file(&linked))?;
    symlink(&real, &linked)?;
    Ok(real)
}

fn make(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().recursive(true).mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ if is_ours(folder) => return Ok(()),
        _ => {}
    }
    let message =
        format!("{} is not a folder to which only this user has access; remove it", folder.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
}

/// Returns an error if something else is in the place of the folder or of the owner's socket, so that the daemon cannot
/// make them.
pub(super) fn check_socket_places(state: &StateFolder) -> io::Result<()> {
    let is_folder = |found: fs::Metadata| found.is_dir();
    let (folder, socket) = (state.path().join(FOLDER), state.socket());
    let blocked = if fs::metadata(&folder).is_ok_and(|found| !is_folder(found)) {
        folder
    } else if fs::symlink_metadata(&socket).is_ok_and(is_folder) {
        socket
    } else {
        return Ok(());
    };
    Err(io::Error::other(format!("{} is in the place of a socket of cowhand; remove it", blocked.display())))
}

fn is_ours(folder: &Path) -> bool {
    let me = rustix::process::getuid().as_raw();
    fs::symlink_metadata(folder)
        .is_ok_and(|found| found.is_dir() && found.uid() == me && found.mode() & 0o777 == 0o700)
}

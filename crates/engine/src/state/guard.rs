//! Ensures that only the owner can use the state folder.

use std::fs::{self, DirEntry, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;

/// Symbolic links that cowhand itself creates if a path is too long for a socket: to the owner's socket, and to the
/// folder of the job socket.
const OWN_LINKS: [&str; 2] = ["sock", "talk"];
/// Folders whose entries are all checked. The contents of a workspace are not checked, because they belong to its
/// repository.
const SEARCHED_FOLDERS: [&str; 2] = ["jobs", "attempts"];

/// Refuses a folder that belongs to another user, or that contains an entry of another user or a symbolic link other
/// than [`OWN_LINKS`]. A missing folder is accepted.
pub(super) fn check(folder: &Path) -> io::Result<()> {
    for_each_entry(folder, &mut |path, metadata| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if metadata.is_symlink() {
            let is_own_link = path.parent() == Some(folder) && OWN_LINKS.contains(&name);
            return if is_own_link { Ok(()) } else { Err(refused(path, LINK)) };
        }
        let me = rustix::process::geteuid().as_raw();
        if metadata.uid() == me {
            return Ok(());
        }
        let why = format!(
            "belongs to user {}, and this is user {me}; run cowhand as the owner, or take the folder over with `chown -R`",
            metadata.uid()
        );
        Err(refused(path, &why))
    })
}

const LINK: &str = "is a symbolic link, which cowhand does not follow here; replace the link with its target, or \
                    remove it";

const NO_FOLDER: &str = "is not a folder, and cowhand keeps its state in a folder; move the file away";

fn refused(path: &Path, why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, format!("{} {why}", path.display()))
}

/// Removes all rights of other users, including rights that an older version or another umask has left.
pub(super) fn close(folder: &Path) -> io::Result<()> {
    for_each_entry(folder, &mut |path, metadata| {
        let is_open = metadata.mode() & 0o077 != 0;
        if !is_open || metadata.is_symlink() {
            return Ok(());
        }
        if metadata.is_dir() && path.parent() != Some(folder) && path != folder {
            // Other users have rights to this folder of an attempt or a job, so their rights to its contents are
            // removed too. If other users have no rights to a folder, they cannot reach its contents, so the contents
            // are skipped.
            return close_all(path);
        }
        close_one(path, metadata)
    })
}

fn close_all(folder: &Path) -> io::Result<()> {
    close_one(folder, &fs::symlink_metadata(folder)?)?;
    for entry in entries(folder)? {
        let found = entry.metadata()?;
        if found.is_dir() {
            close_all(&entry.path())?;
        } else if !found.is_symlink() {
            close_one(&entry.path(), &found)?;
        }
    }
    Ok(())
}

/// Removes the rights of other users from one file or folder; the owner's rights stay.
fn close_one(path: &Path, found: &Metadata) -> io::Result<()> {
    fs::set_permissions(path, Permissions::from_mode(found.mode() & 0o700))
}

/// Calls `visit` for the folder, for each entry, and for each entry of its folders of jobs and attempts.
fn for_each_entry(
    folder: &Path,
    visit: &mut dyn FnMut(&Path, &Metadata) -> io::Result<()>,
) -> io::Result<()> {
    match fs::metadata(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Ok(found) if !found.is_dir() => {
            let message = format!("{} {NO_FOLDER}", folder.display());
            return Err(io::Error::new(io::ErrorKind::NotADirectory, message));
        }
        found => visit(folder, &found?)?,
    }
    for entry in entries(folder)? {
        visit_entry(&entry, visit)?;
        let name = entry.file_name();
        if SEARCHED_FOLDERS.iter().any(|searched| name == *searched) && entry.file_type()?.is_dir() {
            entries(&entry.path())?.iter().try_for_each(|inner| visit_entry(inner, visit))?;
        }
    }
    Ok(())
}

/// Calls `visit` for one entry. An entry that no longer exists is skipped, because a daemon may be removing it.
fn visit_entry(
    entry: &DirEntry,
    visit: &mut dyn FnMut(&Path, &Metadata) -> io::Result<()>,
) -> io::Result<()> {
    let result = entry.metadata().and_then(|found| {
        // The process that binds a socket sets its mode, and may be setting it now.
        if found.file_type().is_socket() { Ok(()) } else { visit(&entry.path(), &found) }
    });
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

fn entries(folder: &Path) -> io::Result<Vec<DirEntry>> {
    fs::read_dir(folder)?.collect()
}

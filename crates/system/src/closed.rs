//! Folders and files whose mode was changed. Any process of the same owner can change a mode, even a process in a
//! Landlock sandbox. So a file that cannot be reached because of a mode does not count as missing.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// Restores the mode of a folder (700) or file (600) of this user. Returns the mode that it had; `None` if nothing was
/// changed. Links and files of other owners are not changed.
pub fn restore_mode(path: &Path) -> io::Result<Option<u32>> {
    let found = fs::symlink_metadata(path)?;
    let user = rustix::process::geteuid().as_raw();
    let required_mode = if found.is_dir() { FOLDER_MODE } else { FILE_MODE };
    let mode = found.mode() & 0o777;
    if found.is_symlink() || found.uid() != user || mode == required_mode {
        return Ok(None);
    }
    fs::set_permissions(path, Permissions::from_mode(required_mode))?;
    Ok(Some(mode))
}

/// Returns the first folder on a path that this user may not search; `None` if there is no such folder, for example
/// because the path does not exist.
pub fn closed_folder(path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    let mut folders: Vec<&Path> = path.ancestors().collect();
    folders.reverse();
    folders.windows(2).find_map(|pair| match fs::symlink_metadata(pair[1]) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Some(pair[0].to_owned()),
        _ => None,
    })
}

/// Returns advice on how to make a folder accessible.
pub fn advice(folder: &Path) -> String {
    let user = rustix::process::geteuid().as_raw();
    let shown = folder.display();
    match fs::symlink_metadata(folder) {
        Ok(found) if found.uid() != user => format!("let user {user} search the folder {shown}"),
        _ => format!("restore the mode: `chmod 700 {shown}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restored_mode_gives_access_only_to_the_owner() {
        let folder = tempfile::tempdir().unwrap();
        let (inner, file) = (folder.path().join("inner"), folder.path().join("file"));
        fs::create_dir(&inner).unwrap();
        fs::write(&file, "").unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        for (path, mode, right) in
            [(&inner, 0o000, 0o700), (&inner, 0o755, 0o700), (&file, 0o000, 0o600), (&file, 0o666, 0o600)]
        {
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
            assert_eq!(restore_mode(path).unwrap(), Some(mode), "{path:?}");
            assert_eq!(fs::metadata(path).unwrap().mode() & 0o777, right);
            assert_eq!(restore_mode(path).unwrap(), None);
        }
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        assert_eq!(restore_mode(&link).unwrap(), None);
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o644, "the target of a link is not changed");
        assert!(restore_mode(&folder.path().join("none")).is_err());
    }

    #[test]
    fn a_missing_folder_is_not_reported_as_closed() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["", "none", "none/inside"] {
            assert_eq!(closed_folder(&folder.path().join(name)), None, "{name}");
        }
        assert!(advice(folder.path()).starts_with("restore the mode: `chmod 700 /"));
    }
}

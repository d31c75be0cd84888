//! Protects the files that cowhand reads: an agent must not create or move them, or replace them by a link, even in a
//! folder where it may write.
//!
//! A mount protects only a path that exists. So a placeholder, an empty file or folder, is created for a missing name
//! before the agent starts. The placeholder is not removed later, because another agent may need it. The folders above
//! a protected path become mounts too, because otherwise the agent could rename them. A link cannot be protected and is
//! refused.

use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::SandboxError;
use crate::start::SandboxPlan;
use cowhand_system::beneath::MAX_LINKS;

/// Refuses a file if the path to it leads through a link in a writable folder, because the agent could redirect the
/// link.
pub(super) fn refuse_link(file: &Path, write: &[PathBuf]) -> Result<(), SandboxError> {
    let mut links = Vec::new();
    find_links(file, &mut links);
    match links.iter().find(|link| is_within(link, write)) {
        None => Ok(()),
        Some(link) => Err(SandboxError::Link(link.clone())),
    }
}

/// Finds the links on the path to a file, including those on the paths to their targets.
fn find_links(path: &Path, links: &mut Vec<PathBuf>) {
    for above in path.ancestors() {
        let (Ok(target), Some(folder), Some(name)) = (above.read_link(), above.parent(), above.file_name())
        else {
            continue;
        };
        let Ok(folder) = folder.canonicalize() else { continue };
        if links.len() < MAX_LINKS {
            links.push(folder.join(name));
            find_links(&folder.join(target), links);
        }
    }
}

/// Returns the path of a file without links, even if the file does not exist. Returns `None` if its folder does not
/// exist.
pub(super) fn real(file: &Path) -> Option<PathBuf> {
    let by_folder = || Some(file.parent()?.canonicalize().ok()?.join(file.file_name()?));
    file.canonicalize().ok().or_else(by_folder)
}

/// Creates a placeholder if the agent could create the file. For `.env` it is an empty file; for a config it is a
/// folder, because an empty file is a valid config.
pub(super) fn reserve_name(file: &Path, write: &[PathBuf]) -> Result<(), SandboxError> {
    if !real(file).is_some_and(|place| is_within(&place, write)) {
        return Ok(());
    }
    let made = if file.file_name().is_some_and(|name| name == ".env") {
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(file).map(drop)
    } else {
        fs::create_dir(file)
    };
    match made.map_err(|error| (error.kind(), error)) {
        // An existing file is kept. A file that cannot be created here cannot be created by the agent either, because
        // both have the same user.
        Ok(())
        | Err((ErrorKind::AlreadyExists | ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem, _)) => {
            Ok(())
        }
        Err((_, error)) => Err(SandboxError::NameNotProtected { file: file.to_owned(), error }),
    }
}

fn is_within(path: &Path, outer: &[PathBuf]) -> bool {
    outer.iter().any(|outer| path.starts_with(outer))
}

impl SandboxPlan {
    /// Returns the folders between a writable folder and a read-only or hidden path in it.
    pub(super) fn pinned(&self) -> Vec<PathBuf> {
        let kept = self.read_only.iter().chain(&self.hidden);
        let above = kept.flat_map(|kept| kept.ancestors().skip(1));
        let inside = |folder: &&Path| {
            self.write.iter().any(|write| folder.starts_with(write))
                && !self.write.iter().any(|write| write == folder)
        };
        let mut pinned: Vec<PathBuf> = above.filter(inside).map(Path::to_owned).collect();
        pinned.sort();
        pinned.dedup();
        pinned
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_that_the_agent_can_change_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let at = |name: &str| root.join(name);
        for name in ["desk/sub", "out"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        fs::write(at("out/real"), "").unwrap();
        fs::write(at("desk/sub/file"), "").unwrap();
        symlink("../out/real", at("desk/link")).unwrap();
        symlink(at("desk/link"), at("out/twice")).unwrap();
        symlink(at("desk/sub"), at("out/folder")).unwrap();
        symlink(at("out"), at("desk/out")).unwrap();
        symlink("round", at("desk/round")).unwrap();
        let write = [at("desk")];
        for (name, may_change) in [
            ("desk/link", true),
            ("out/twice", true),
            ("desk/out/real", true),
            ("desk/round", true),
            // No link on these paths lies in the writable folder. The target of a link outside does not matter.
            ("out/folder/file", false),
            ("desk/sub/file", false),
            ("out/real", false),
            ("nowhere/at/all", false),
        ] {
            assert_eq!(refuse_link(&at(name), &write).is_err(), may_change, "{name}");
        }
    }

    #[test]
    fn missing_files_are_created_only_in_writable_folders() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let at = |name: &str| root.join(name);
        for name in ["desk", "out"] {
            fs::create_dir(at(name)).unwrap();
        }
        fs::write(at("desk/there"), "text").unwrap();
        for name in ["desk/.env", "desk/cowhand.yaml", "desk/there", "out/.env", "nowhere/.env"] {
            for _ in 0..2 {
                reserve_name(&at(name), &[at("desk")]).unwrap();
            }
        }
        assert_eq!(fs::read(at("desk/.env")).unwrap(), b"");
        assert!(at("desk/cowhand.yaml").is_dir());
        assert_eq!(fs::read(at("desk/there")).unwrap(), b"text");
        assert!(!at("out/.env").exists() && !at("nowhere").exists());
        let why = reserve_name(&at("desk/there/below"), &[at("desk")]).unwrap_err().to_string();
        assert!(why.contains("cannot protect the name"), "{why}");
    }

    #[test]
    fn folders_between_writable_and_protected_paths_are_pinned() {
        let paths = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
        let sandbox = SandboxPlan {
            write: paths(&["/w", "/w/a/b", "/v"]),
            read_only: paths(&["/w/a/b/c/file", "/w/file", "/else/x/file"]),
            hidden: paths(&["/w/d/state"]),
            ..SandboxPlan::default()
        };
        assert_eq!(sandbox.pinned(), paths(&["/w/a", "/w/a/b/c", "/w/d"]));
    }
}

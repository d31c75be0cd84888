//! Files of a workspace that git does not show. Git refuses some names, skips every `.git`, and cannot reach a path
//! that is too long or a folder without access. This module searches the workspace without git, and makes notes for the
//! reader of the diff about the files that the diff does not contain.

use std::collections::{BTreeSet, HashSet};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use cowhand_system::tree::{self, Next, Purpose, TreeEntry, TreeStep};
use rustix::fs::FileType;

use super::error::WorkspaceError;
use super::git::Git;
use super::hidden::{MAX_BASE_BYTES, MAX_NAMED_FILES};

/// Maximum length of a path in a note. A longer path is shown by its first folders.
const MAX_PATH_BYTES: usize = 300;
/// Maximum length of a path in git's lists, including a NUL at its end.
const MAX_LISTED_BYTES: usize = 4096;

/// Paths for a note: the first ones in the order of names, and the number of all paths.
#[derive(Debug, Default)]
struct NamedPaths {
    first: BTreeSet<String>,
    count: usize,
}

impl NamedPaths {
    fn add(&mut self, path: &Path) {
        self.count += 1;
        self.first.insert(shortened(path));
        if self.first.len() > MAX_NAMED_FILES {
            self.first.pop_last();
        }
    }

    /// Returns the note: `about`, the number and the names; `None` without paths.
    fn note(&self, about: &str) -> Option<String> {
        let more = if self.count > self.first.len() { ", …" } else { "" };
        let names: Vec<String> = self.first.iter().map(|name| format!("{name:?}")).collect();
        (self.count > 0).then(|| format!("{about}: {} ({}{more})", self.count, names.join(", ")))
    }
}

/// Returns the path as text, without the folders that make it too long.
fn shortened(path: &Path) -> String {
    let mut short = PathBuf::new();
    for part in path.components() {
        if short.as_os_str().len() + part.as_os_str().len() >= MAX_PATH_BYTES {
            return format!("{}/…", short.display());
        }
        short.push(part);
    }
    short.display().to_string()
}

/// Files and folders of a workspace that cannot be read, because another user owns them.
#[derive(Debug, Default)]
pub(super) struct UnreadablePaths {
    /// Names of files that git cannot read.
    files: HashSet<Vec<u8>>,
    /// The subset of `files` that would be in the diff and is left out. Git ignores the other files.
    left_out: NamedPaths,
    folders: NamedPaths,
}

impl UnreadablePaths {
    /// Makes all files of this user in the workspace readable, and finds the files and folders that stay unreadable.
    /// The agent may have changed modes.
    pub(super) fn find(workspace: &Path) -> Result<Self, WorkspaceError> {
        let mut unreadable = Self::default();
        tree::walk(workspace, &mut |step| unreadable.check(step)).map_err(WorkspaceError::file(workspace))?;
        Ok(unreadable)
    }

    fn check(&mut self, step: &TreeStep<'_>) -> io::Result<Next> {
        match step {
            TreeStep::Folder(found) => {
                // If the folder still cannot be opened, the next step is `Closed`.
                found.make_accessible(Purpose::Read).ok();
            }
            TreeStep::File(found) => {
                // A file that was removed meanwhile is left out.
                if !found.make_accessible(Purpose::Read).or_else(absent_is_true)? {
                    self.files.insert(below_top(found).as_os_str().as_bytes().to_owned());
                }
            }
            TreeStep::Closed(found, error) if error.kind() == io::ErrorKind::PermissionDenied => {
                self.folders.add(below_top(found));
            }
            TreeStep::Closed(_, error) => return Err(io::Error::new(error.kind(), error.to_string())),
            TreeStep::Left(_) => {}
        }
        Ok(Next::Continue)
    }

    /// Returns the names of new files, each with a NUL at its end, without those that cannot be read.
    pub(super) fn without(&mut self, names: &[u8]) -> Vec<u8> {
        let mut readable = Vec::new();
        for name in names.split_inclusive(|byte| *byte == 0) {
            match name.strip_suffix(b"\0").filter(|name| self.files.contains(*name)) {
                Some(name) => self.left_out.add(Path::new(OsStr::from_bytes(name))),
                None => readable.extend(name),
            }
        }
        readable
    }

    /// Leaves the unreadable files of the index out of the comparison: git would end with an error at the first such
    /// file.
    pub(super) fn leave_out(&mut self, git: &Git) -> Result<(), WorkspaceError> {
        if self.files.is_empty() {
            return Ok(());
        }
        let tracked = list(git, &[])?.0;
        let tracked = tracked.split(|byte| *byte == 0).filter(|name| self.files.contains(*name));
        let tracked: Vec<&OsStr> = tracked.map(OsStr::from_bytes).collect();
        git.flag("--skip-worktree", &tracked)?;
        for name in tracked {
            self.left_out.add(Path::new(name));
        }
        Ok(())
    }

    pub(super) fn notes(&self) -> impl Iterator<Item = String> {
        let files = "files that belong to another user and cannot be read, so they are not compared";
        let folders = "folders that cannot be read, so files in them are not in the diff";
        [self.left_out.note(files), self.folders.note(folders)].into_iter().flatten()
    }
}

fn absent_is_true(error: io::Error) -> io::Result<bool> {
    match error.kind() {
        io::ErrorKind::NotFound => Ok(true),
        io::ErrorKind::PermissionDenied => Ok(false),
        _ => Err(error),
    }
}

/// Lists the files of the index or, with the option `--others`, the files that are not in it. Also returns whether the
/// list was cut.
fn list(git: &Git, options: &[&str]) -> Result<(Vec<u8>, bool), WorkspaceError> {
    git.run_limited(&[["ls-files", "-z"].as_slice(), options].concat(), MAX_BASE_BYTES)
}

/// Returns the name of a file as git lists it; `None` if it is too long for git to list it.
fn listed_name<'a>(found: &TreeEntry<'a>) -> Option<&'a [u8]> {
    Some(below_top(found).as_os_str().as_bytes()).filter(|name| name.len() < MAX_LISTED_BYTES)
}

fn below_top<'a>(found: &TreeEntry<'a>) -> &'a Path {
    let mut parts = found.path.components();
    parts.next();
    parts.as_path()
}

/// Describes the files that git neither compares nor lists with `--others`; `None` if there are none. The index has the
/// files that are compared. `new` has the new files that were to be added to the index, each with a NUL at its end. If
/// one of them is not in the index, git has refused it, and the note includes it.
pub(super) fn note(git: &Git, workspace: &Path, new: &[u8]) -> Result<Option<String>, WorkspaceError> {
    let ((compared, is_cut), (others, are_cut)) = (list(git, &[])?, list(git, &["--others"])?);
    if is_cut || are_cut {
        return Ok(Some("the workspace has too many files to find those that git does not show".to_owned()));
    }
    let set = |names| <[u8]>::split(names, |byte| *byte == 0).collect::<HashSet<&[u8]>>();
    let (compared, others, new) = (set(&compared), set(&others), set(new));
    let mut unlisted = NamedPaths::default();
    tree::walk(workspace, &mut |step| {
        match step {
            TreeStep::Folder(found) => {
                let Some(name) = listed_name(found) else { return Ok(Next::Continue) };
                // Submodules and other repositories have their own notes.
                let is_other = compared.contains(name) || others.contains([name, b"/"].concat().as_slice());
                if name == b".git" || (is_other && !name.is_empty()) {
                    return Ok(Next::Skip);
                }
            }
            TreeStep::File(found) if matches!(found.kind, FileType::RegularFile | FileType::Symlink) => {
                let is_shown = listed_name(found).is_some_and(|name| {
                    name == b".git"
                        || compared.contains(name)
                        || (others.contains(name) && !new.contains(name))
                });
                if !is_shown {
                    unlisted.add(below_top(found));
                }
            }
            TreeStep::File(_) | TreeStep::Left(_) | TreeStep::Closed(..) => {}
        }
        Ok(Next::Continue)
    })
    .map_err(WorkspaceError::file(workspace))?;
    Ok(unlisted
        .note("files that are not in the diff, because git does not accept their names or cannot reach them"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_has_the_number_and_the_first_names() {
        let mut paths = NamedPaths::default();
        assert_eq!(paths.note("lost"), None);
        paths.add(Path::new("b\"c"));
        paths.add(Path::new("a/.git/x"));
        assert_eq!(paths.note("lost").unwrap(), r#"lost: 2 ("a/.git/x", "b\"c")"#);
        for number in 10..30 {
            paths.add(Path::new(&format!("z{number}")));
        }
        let note = paths.note("lost").unwrap();
        assert!(note.starts_with("lost: 22 (\"a/.git/x\", ") && note.ends_with("\"z17\", …)"), "{note}");
    }

    #[test]
    fn a_path_that_is_too_long_is_named_by_its_first_folders() {
        let folder = "n".repeat(140);
        assert_eq!(shortened(&PathBuf::from_iter([&*folder, "file"])), format!("{folder}/file"));
        let deep: PathBuf = std::iter::repeat_n(&folder, 30).collect();
        assert_eq!(shortened(&deep), format!("{folder}/{folder}/…"));
    }
}

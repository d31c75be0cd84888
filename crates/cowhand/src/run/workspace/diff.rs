//! What a job changed: committed, uncommitted and new files, against the commit that its workspace began with.

use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use cowhand_core::workspace::IsolationKind;

use super::git::Git;
use crate::beneath::Root;
use crate::gone::gone;
use cowhand_core::workspace::Workspace;

/// What is kept of a diff.
const MOST: usize = 1 << 20;

/// The largest index that is copied; the agent may have put anything in its place.
const LARGEST_INDEX: u64 = 1 << 30;

/// A submodule is not looked into: git would do that by a process that obeys the submodule's own config.
const HOW: [&str; 7] = [
    "--no-color",
    "--no-ext-diff",
    "--no-textconv",
    "--no-renames",
    "--src-prefix=a/",
    "--dst-prefix=b/",
    "--ignore-submodules=dirty",
];

/// The text, with a last line that says so if it was cut. `scratch` is a file that may be written.
pub(crate) fn diff(workspace: &Workspace, scratch: &Path) -> Result<Vec<u8>, String> {
    gone(fs::remove_file(scratch)).map_err(|error| format!("{}: {error}", scratch.display()))?;
    let whole = of_tree(workspace, scratch);
    // Whatever came of it, it was ours.
    let _ = fs::remove_file(scratch);
    // Without its directory, what was committed still tells.
    let (mut text, cut) = whole.or_else(|why| of_branch(workspace).map_err(|_| why))?;
    if cut {
        let end = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        text.truncate(end);
        text.extend(format!("# cowhand: the diff is longer than {MOST} bytes and was cut here\n").bytes());
    }
    Ok(text)
}

fn of_tree(workspace: &Workspace, scratch: &Path) -> Result<(Vec<u8>, bool), String> {
    let git = Git::after_agent(&workspace.path)?;
    let top = git.run(&["rev-parse", "--show-toplevel"])?;
    if Path::new(&top) != workspace.path {
        return Err(format!("{} is no repository any more", workspace.path.display()));
    }
    let common = common(&git)?;
    if common != own_repository(workspace)? {
        return Err(format!("{} belongs to another repository now", workspace.path.display()));
    }
    let index = PathBuf::from(git.run(&["rev-parse", "--path-format=absolute", "--git-path", "index"])?);
    copy_index(&common, &index, scratch).map_err(|error| format!("its index cannot be read: {error}"))?;
    let git = git.with_index(scratch.to_owned());
    // New files are named in a copy of the index, so that the diff sees them and nothing of the workspace changes. One
    // that cannot be read keeps no other from being seen.
    let names = scratch.with_extension("names");
    if let Some(listed) = new_files(&git, &names)? {
        let _ = git.run(&["add", "--intent-to-add", "--ignore-errors", "--pathspec-file-nul", &listed]);
    }
    gone(fs::remove_file(&names)).map_err(|error| format!("{}: {error}", names.display()))?;
    git.beginning(&[["diff"].as_slice(), &HOW, &[&workspace.base, "--"]].concat(), MOST)
}

/// Writes the names of new files into a file, and answers with the option that names it; none if there are no new files.
/// Only these are added, because adding a submodule looks into it as a diff would. Other repositories are left out.
fn new_files(git: &Git, names: &Path) -> Result<Option<String>, String> {
    let (mut listed, cut) = git.beginning(&["ls-files", "-z", "--others", "--exclude-standard"], MOST)?;
    if cut {
        let end = listed.iter().rposition(|byte| *byte == 0).map_or(0, |end| end + 1);
        listed.truncate(end);
    }
    let files = listed.split_inclusive(|byte| *byte == 0).filter(|name| !name.ends_with(b"/\0"));
    let files: Vec<u8> = files.flatten().copied().collect();
    let place = names.to_str().filter(|_| !files.is_empty());
    if place.is_some() {
        fs::write(names, files).map_err(|error| format!("{}: {error}", names.display()))?;
    }
    Ok(place.map(|place| format!("--pathspec-from-file={place}")))
}

/// The repository that a working tree says it belongs to.
fn common(git: &Git) -> Result<PathBuf, String> {
    git.run(&["rev-parse", "--path-format=absolute", "--git-common-dir"]).map(PathBuf::from)
}

/// The repository that the workspace was made with.
fn own_repository(workspace: &Workspace) -> Result<PathBuf, String> {
    match workspace.kind {
        IsolationKind::Clone => Ok(workspace.path.join(".git")),
        IsolationKind::Worktree | IsolationKind::Shared => common(&Git::at(&workspace.repository)),
    }
}

fn copy_index(common: &Path, index: &Path, scratch: &Path) -> io::Result<()> {
    // The agent may have made a link or a pipe of any of it.
    let (top, name) = (common.parent().unwrap_or(common), common.file_name().unwrap_or_default());
    let below = index.strip_prefix(common).map_err(io::Error::other)?;
    let index = Root::open(top)?.directory(Path::new(name))?.file(below)?;
    let mut copy = OpenOptions::new().write(true).create_new(true).mode(0o600).open(scratch)?;
    let copied = io::copy(&mut index.take(LARGEST_INDEX + 1), &mut copy)?;
    if copied > LARGEST_INDEX { Err(io::Error::other("it is too large")) } else { Ok(()) }
}

fn of_branch(workspace: &Workspace) -> Result<(Vec<u8>, bool), String> {
    let git = Git::at(&workspace.repository);
    git.beginning(&[["diff"].as_slice(), &HOW, &[&workspace.base, &workspace.branch, "--"]].concat(), MOST)
}

//! What a job changed: committed, uncommitted and new files, against the commit that its workspace began with.

use std::fs;
use std::path::{Path, PathBuf};

use super::git::Git;
use crate::store::Workspace;

/// What is kept of a diff.
const MOST: usize = 1 << 20;

const HOW: [&str; 6] =
    ["--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", "--src-prefix=a/", "--dst-prefix=b/"];

/// The text, with a last line that says so if it was cut. `scratch` is a file that may be written.
pub(crate) fn diff(workspace: &Workspace, scratch: &Path) -> Result<Vec<u8>, String> {
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
    let index = git.run(&["rev-parse", "--git-path", "index"])?;
    fs::copy(workspace.path.join(PathBuf::from(index)), scratch)
        .map_err(|error| format!("there is no index: {error}"))?;
    let git = git.with_index(scratch.to_owned());
    // New files are named in a copy of the index, so that the diff sees them and nothing of the workspace changes. One
    // that cannot be read keeps no other from being seen.
    let _ = git.run(&["add", "--intent-to-add", "--ignore-errors", "--", "."]);
    git.beginning(&[["diff"].as_slice(), &HOW, &[&workspace.base, "--"]].concat(), MOST)
}

fn of_branch(workspace: &Workspace) -> Result<(Vec<u8>, bool), String> {
    let git = Git::at(&workspace.repository);
    git.beginning(&[["diff"].as_slice(), &HOW, &[&workspace.base, &workspace.branch, "--"]].concat(), MOST)
}

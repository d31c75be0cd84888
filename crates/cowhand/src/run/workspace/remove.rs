//! Removing a workspace, whatever its agent did to it.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use cowhand_core::workspace::IsolationKind;

use super::git::Git;
use super::head;
use crate::gone::gone;
use crate::store::Workspace;

/// What is left once the directory is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    Nothing,
    /// It holds commits that are nowhere else.
    Branch,
}

/// May be done again, also if the last one was killed half way. `folder` is where all workspaces are: nothing outside of
/// it is ever removed.
pub(crate) fn remove(workspace: &Workspace, folder: &Path) -> Result<Left, String> {
    let path = &workspace.path;
    if path.parent() != Some(folder) {
        return Err(format!("{} is not in {}", path.display(), folder.display()));
    }
    // A repository that is gone has nothing to be told.
    let known = workspace.repository.is_dir();
    if known && workspace.kind == IsolationKind::Clone {
        bring_home(workspace)?;
    }
    clear(path).map_err(|error| format!("cannot remove {}: {error}", path.display()))?;
    if !known {
        return Ok(Left::Nothing);
    }
    if workspace.kind == IsolationKind::Worktree {
        forget_worktree(workspace)?;
    }
    drop_branch(workspace)
}

/// Whether the branch of a workspace that is gone could go now, or has: its commits are elsewhere by now.
pub(crate) fn branch_has_gone(workspace: &Workspace) -> Result<bool, String> {
    if !workspace.repository.is_dir() {
        return Ok(true);
    }
    Ok(drop_branch(workspace)? == Left::Nothing)
}

/// The commits of a clone that are nowhere else become a branch of the repository it was made from.
fn bring_home(workspace: &Workspace) -> Result<(), String> {
    let Ok(clone) = Git::after_agent(&workspace.path) else { return Ok(()) };
    // Made half, or broken by its agent: there is nothing that could be brought.
    let Ok(tip) = clone.run(&["rev-parse", "--verify", "--quiet", "HEAD^{commit}"]) else { return Ok(()) };
    let own = clone.run(&["rev-list", "-n", "1", &tip, "--not", &workspace.base, "--remotes", "--tags"]);
    if own.is_ok_and(|own| own.is_empty()) {
        return Ok(());
    }
    let (source, target) = (workspace.path.to_string_lossy(), format!("+HEAD:{}", head(&workspace.branch)));
    let git = Git::at(&workspace.repository).patient();
    git.run(&["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--", &source, &target]).map(drop)
}

/// Also if it is locked, or its directory is gone.
fn forget_worktree(workspace: &Workspace) -> Result<(), String> {
    let git = Git::at(&workspace.repository);
    let place = workspace.path.to_string_lossy();
    let listed = git.run(&["worktree", "list", "--porcelain", "-z"])?;
    if listed.split('\0').any(|line| line.strip_prefix("worktree ") == Some(&*place)) {
        git.run(&["worktree", "remove", "--force", "--force", "--", &place])?;
    }
    Ok(())
}

/// Ours, unless it has commits that no other branch, tag or remote has.
fn drop_branch(workspace: &Workspace) -> Result<Left, String> {
    let git = Git::at(&workspace.repository);
    let (reference, exclude) = (head(&workspace.branch), format!("--exclude={}", workspace.branch));
    if !git.says(&["show-ref", "--verify", "--quiet", &reference])? {
        return Ok(Left::Nothing);
    }
    let tip = git.run(&["rev-parse", "--verify", &reference])?;
    let elsewhere = ["--not", &workspace.base, &exclude, "--branches", "--tags", "--remotes"];
    let own = git.run(&[["rev-list", "-n", "1", &tip].as_slice(), &elsewhere].concat())?;
    if !own.is_empty() {
        return Ok(Left::Branch);
    }
    // Not if it has moved since.
    git.run(&["update-ref", "-d", &reference, &tip])?;
    Ok(Left::Nothing)
}

/// Removes it, links as links; an agent may have taken away our right to.
fn clear(path: &Path) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if !found.is_dir() {
        return gone(fs::remove_file(path));
    }
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            thaw(path)?;
            gone(fs::remove_dir_all(path))
        }
        removed => gone(removed),
    }
}

/// Lets its owner into every folder again; links are not followed.
fn thaw(folder: &Path) -> io::Result<()> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            thaw(&entry.path())?;
        }
    }
    Ok(())
}

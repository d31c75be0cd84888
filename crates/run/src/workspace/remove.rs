//! Removing a workspace, even if its agent changed git's files, links or modes in it.

use std::fs;
use std::io;
use std::path::Path;

use cowhand_core::workspace::IsolationKind;
use rustix::fs::FileType;
use tracing::warn;

use super::branch_ref;
use super::error::WorkspaceError;
use super::git::Git;
use super::record;
use crate::minder::LockedMinder;
use cowhand_core::workspace::Workspace;
use cowhand_system::beneath::{NotOpened, Root};
use cowhand_system::remove::{is_missing, missing_is_ok, remove_folder};
use cowhand_system::tree::{self, Next, Purpose, TreeEntry, TreeStep};

/// The part of a workspace that remains after its directory is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemainingPart {
    Nothing,
    /// The branch remains, because it has commits that exist nowhere else, or because the repository is missing.
    Branch,
}

/// Removes a workspace, and its branch if no commit is lost. The call can be repeated, also after an interruption.
/// `folder` contains all workspaces; a workspace outside it is an error. If the daemon ends, the minder ends
/// the git process that it runs.
pub fn remove(
    workspace: &Workspace,
    folder: &Path,
    minder: Option<&LockedMinder>,
) -> Result<RemainingPart, WorkspaceError> {
    let path = &workspace.path;
    if path.parent() != Some(folder) {
        return Err(WorkspaceError::Outside { path: path.clone(), folder: folder.to_owned() });
    }
    if workspace.kind == IsolationKind::Clone {
        copy_commits_back(workspace, minder)?;
    }
    if workspace.kind == IsolationKind::Worktree {
        keep_detached_commits(workspace, minder)?;
    }
    discard(path).map_err(|error| WorkspaceError::NotRemoved { path: path.clone(), error })?;
    // The repository may come back, with the branch and the record of the worktree.
    if is_missing(&workspace.repository) {
        return Ok(RemainingPart::Branch);
    }
    // The record is removed first, because the agent may have changed it.
    if workspace.kind == IsolationKind::Worktree {
        record::remove(workspace)?;
    }
    record::restore(workspace)?;
    drop_branch(workspace, minder)
}

/// Removes the branch of a removed workspace if its commits now exist elsewhere, and returns whether it is removed. If
/// the repository was missing when the workspace was removed, also removes the record of the worktree.
pub fn remove_branch_if_stored(
    workspace: &Workspace,
    minder: Option<&LockedMinder>,
) -> Result<bool, WorkspaceError> {
    // The repository may come back, with the branch.
    if is_missing(&workspace.repository) {
        return Ok(false);
    }
    if workspace.kind == IsolationKind::Worktree {
        keep_detached_commits(workspace, minder)?;
        record::remove(workspace)?;
    }
    record::restore(workspace)?;
    Ok(drop_branch(workspace, minder)? == RemainingPart::Nothing)
}

/// Copies the commits of a clone that are nowhere else into a branch of the original repository. If the commits cannot
/// be read or stored, that is an error, and the clone stays. Nothing is copied if the agent made the clone refer to
/// another repository.
fn copy_commits_back(workspace: &Workspace, minder: Option<&LockedMinder>) -> Result<(), WorkspaceError> {
    match is_directory(&workspace.path) {
        Ok(true) => {}
        // The agent removed the clone, or an earlier removal was interrupted.
        Ok(false) => return Ok(()),
        Err(error) => return Err(WorkspaceError::File { path: workspace.path.clone(), error }),
    }
    match outside_reference(&workspace.path) {
        Ok(None) => {}
        // A fetch could copy commits of a repository that the agent is not allowed to read.
        Ok(Some(what)) => {
            let path = workspace.path.display();
            warn!(job = %workspace.job, "the commits in {path} are not copied back: its agent changed {what} to refer to another repository");
            return Ok(());
        }
        Err(error) => return Err(WorkspaceError::NotReadable { path: workspace.path.clone(), error }),
    }
    let stored = if has_commits(workspace, minder)? { store_commits(workspace, minder) } else { Ok(()) };
    stored.map_err(|why| WorkspaceError::NotStored {
        repository: workspace.repository.clone(),
        why: Box::new(why),
    })
}

/// Gives a branch to the commits of a detached HEAD that no branch, tag or remote-tracking branch has. Otherwise git
/// would lose them, because the HEAD of a worktree is removed with its record. The branch is the branch of the job,
/// unless that branch has other commits.
fn keep_detached_commits(workspace: &Workspace, minder: Option<&LockedMinder>) -> Result<(), WorkspaceError> {
    if is_missing(&workspace.repository) {
        return Ok(());
    }
    record::restore(workspace)?;
    let Some(head) = record::detached_head(workspace)? else { return Ok(()) };
    let git = Git::at(&workspace.repository).with_minder(minder);
    let commit = format!("{head}^{{commit}}");
    let Some(tip) = git.find(&["rev-parse", "--verify", "--quiet", &commit])? else { return Ok(()) };
    let own = ["rev-list", "--ignore-missing", "--count", "-n", "1", &tip];
    let elsewhere = ["--not", &workspace.base, "--branches", "--tags", "--remotes"];
    if git.run(&[own.as_slice(), &elsewhere].concat())? == "0" {
        return Ok(());
    }
    let reference = branch_ref(&workspace.branch);
    let target = match git.find(&["rev-parse", "--verify", "--quiet", &reference])? {
        Some(branch) if !git.succeeds(&["merge-base", "--is-ancestor", &branch, &tip])? => {
            format!("{reference}-detached")
        }
        Some(_) | None => reference,
    };
    git.run(&["update-ref", &target, &tip]).map(drop)
}

/// Returns true if a clone has commits that are possibly missing in the original repository.
fn has_commits(workspace: &Workspace, minder: Option<&LockedMinder>) -> Result<bool, WorkspaceError> {
    let folder = workspace.path.join(".git");
    // An incomplete clone, from before its agent started, has nothing to copy.
    if ["HEAD", "objects", "refs"].iter().any(|part| is_missing(&folder.join(part))) {
        return Ok(false);
    }
    // Without `with_repository`, git would also search the folders above for a repository.
    let clone = Git::after_agent(&workspace.path, minder)?.with_repository(folder, workspace.path.clone());
    let Some(tip) = clone.find(&["rev-parse", "--verify", "--quiet", "HEAD^{commit}"])? else {
        return Ok(false);
    };
    // The agent may have created tags, which exist only in the clone, so they are not excluded.
    let own = ["rev-list", "--ignore-missing", "--count", "-n", "1", &tip];
    let own = [own.as_slice(), &["--not", &workspace.base, "--remotes"]].concat();
    // If git cannot count the commits, for example because the agent removed the base commit, the clone may have some.
    // The fetch then copies them or fails.
    Ok(!clone.run(&own).is_ok_and(|own| own == "0"))
}

fn store_commits(workspace: &Workspace, minder: Option<&LockedMinder>) -> Result<(), WorkspaceError> {
    if is_missing(&workspace.repository) {
        return Err(WorkspaceError::RepositoryMissing);
    }
    // A fetch reads the records of all worktrees.
    record::restore(workspace)?;
    let (source, target) =
        (workspace.path.to_string_lossy(), format!("+HEAD:{}", branch_ref(&workspace.branch)));
    let git = Git::at(&workspace.repository).with_long_timeout().with_minder(minder);
    git.run(&["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--", &source, &target]).map(drop)
}

/// Returns a path in the repository of a clone that refers to another place: a link, or a file that names another
/// repository. Clones that cowhand makes have neither.
fn outside_reference(clone: &Path) -> Result<Option<String>, NotOpened> {
    let mut reference = None;
    tree::walk(clone, &mut |step| {
        let found = match step {
            TreeStep::Folder(found) | TreeStep::File(found) => found,
            TreeStep::Left(_) => return Ok(Next::Continue),
            TreeStep::Closed(_, error) => return Err(io::Error::new(error.kind(), error.to_string())),
        };
        let next = next_in_clone(found, &mut reference);
        if next == Next::Continue {
            // The agent may have changed modes.
            found.make_accessible(Purpose::Read)?;
        }
        Ok(next)
    })?;
    if reference.is_some() {
        return Ok(reference);
    }
    let git = match Root::open(clone).and_then(|root| root.directory(Path::new(".git"))) {
        // The clone has no repository, so `has_commits` finds nothing to copy.
        Err(NotOpened::Missing) => return Ok(None),
        git => git?,
    };
    let alternates = ["objects/info/alternates", "objects/info/http-alternates"];
    for file in alternates {
        match git.file(Path::new(file)) {
            Err(NotOpened::Missing) => {}
            // After such an error, it is unknown whether the file exists.
            Err(error @ NotOpened::Io(_)) => return Err(error),
            Ok(_) | Err(_) => return Ok(Some(format!(".git/{file}"))),
        }
    }
    Ok(None)
}

/// Checks one file or folder of a clone, and stores in `reference` a path that refers to another place. Only `.git` and
/// its folders with objects and refs are searched.
fn next_in_clone(found: &TreeEntry<'_>, reference: &mut Option<String>) -> Next {
    let mut parts = found.path.iter().skip(1);
    let (top, name, is_deeper) = (parts.next(), parts.next(), parts.next().is_some());
    let Some(top) = top else { return Next::Continue };
    if top != ".git" {
        return Next::Skip;
    }
    let is_folder = found.kind == FileType::Directory;
    let Some(name) = name else {
        if !is_folder {
            *reference = Some(".git".to_owned());
        }
        return if is_folder { Next::Continue } else { Next::Stop };
    };
    if found.kind == FileType::Symlink || (!is_deeper && name == "commondir") {
        *reference = Some(format!(".git/{}", name.to_string_lossy()));
        return Next::Stop;
    }
    let is_read = matches!(name.to_str(), Some("objects" | "refs" | "reftable"));
    if is_folder && !is_deeper && !is_read { Next::Skip } else { Next::Continue }
}

/// Removes the branch unless it has commits that no other branch, tag or remote has.
fn drop_branch(
    workspace: &Workspace,
    minder: Option<&LockedMinder>,
) -> Result<RemainingPart, WorkspaceError> {
    let git = Git::at(&workspace.repository).with_minder(minder);
    let (reference, exclude) = (branch_ref(&workspace.branch), format!("--exclude={}", workspace.branch));
    if !git.succeeds(&["show-ref", "--verify", "--quiet", &reference])? {
        return Ok(RemainingPart::Nothing);
    }
    let tip = git.run(&["rev-parse", "--verify", &reference])?;
    let elsewhere = ["--not", &workspace.base, &exclude, "--branches", "--tags", "--remotes"];
    // Any agent could have written a dangling ref. It contains no commits, so `--ignore-missing` makes git ignore it.
    let own = ["rev-list", "--ignore-missing", "--count", "-n", "1", &tip];
    if git.run(&[own.as_slice(), &elsewhere].concat())? != "0" {
        return Ok(RemainingPart::Branch);
    }
    // The branch is removed only if it still has the same tip.
    git.run(&["update-ref", "-d", &reference, &tip])?;
    Ok(RemainingPart::Nothing)
}

/// Removes the directory of a workspace. The directory is renamed first, so that an interrupted removal leaves no
/// damaged directory at the path of the workspace. For a damaged directory, it would be unknown whether its commits are
/// stored.
fn discard(path: &Path) -> io::Result<()> {
    let mut removed = path.as_os_str().to_owned();
    removed.push(".removed");
    let removed = Path::new(&removed);
    remove_folder(removed)?;
    missing_is_ok(fs::rename(path, removed))?;
    remove_folder(removed)
}

/// Returns true if a directory is at this path, without following a link.
pub(super) fn is_directory(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        found => Ok(found?.is_dir()),
    }
}

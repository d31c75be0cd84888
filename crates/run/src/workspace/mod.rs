//! Workspaces. A workspace is a worktree or a clone for one job. It is created before the job's first attempt. The rule
//! `cleanup` decides whether it is removed after the end of the job.
//!
//! The `git` program does the work, in the repository of the agent's directory. Nothing here is async: callers use a
//! blocking thread.
//!
//! A branch is removed with its workspace only if no commit is lost. A branch is kept if it has commits that no other
//! branch, tag or remote has, because these commits are the result of the job.

mod alternates;
mod diff;
mod error;
mod flags;
mod git;
mod hidden;
mod record;
mod remove;
mod setup;
mod unlisted;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use cowhand_core::workspace::{IsolationKind, IsolationRules};

use crate::minder::LockedMinder;
use cowhand_core::workspace::Workspace;
use cowhand_system::beneath::{NotOpened, Root};
pub use diff::diff;
pub use error::WorkspaceError;
use git::Git;
pub use remove::{RemainingPart, remove, remove_branch_if_stored};
pub use setup::{Setup, SetupFailure, set_up};

/// Repository and commit from which a workspace is created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceBase {
    /// Top of the working tree.
    pub repository: PathBuf,
    /// Agent's directory, relative to the top.
    pub below: PathBuf,
    /// Commit at which the new branch starts.
    pub base: String,
}

impl WorkspaceBase {
    /// Finds the repository and the base commit of the agent's directory.
    pub fn of(
        directory: &Path,
        rules: &IsolationRules,
        stop: &Arc<AtomicBool>,
    ) -> Result<Self, WorkspaceError> {
        let git = Git::at(directory).with_stop(stop);
        let no = |why: WorkspaceError| WorkspaceError::NoBase {
            kind: rules.kind,
            directory: directory.to_owned(),
            why: Box::new(why),
        };
        let repository = git.run(&["rev-parse", "--show-toplevel"]).map_err(no)?;
        let below = git.run(&["rev-parse", "--show-prefix"]).map_err(no)?;
        let base = rules.base.as_deref().unwrap_or("HEAD");
        let commit = format!("{base}^{{commit}}");
        let base = git.run(&["rev-parse", "--verify", "--end-of-options", &commit]).map_err(|why| {
            let why = Box::new(why);
            no(if rules.base.is_none() {
                WorkspaceError::NoCommits(why)
            } else {
                WorkspaceError::NoSuchBase { base: base.to_owned(), why }
            })
        })?;
        Ok(Self { repository: PathBuf::from(repository), below: PathBuf::from(below), base })
    }

    /// Returns the first of these branch names that is valid and not in use, or the error of the first name.
    pub fn first_free(&self, names: &[String], stop: &Arc<AtomicBool>) -> Result<String, WorkspaceError> {
        let mut wrong = None;
        for name in names {
            match self.check_branch(name, stop) {
                Ok(()) => return Ok(name.clone()),
                Err(why) => _ = wrong.get_or_insert(why),
            }
        }
        Err(wrong.unwrap_or_else(|| WorkspaceError::Git(String::new())))
    }

    fn check_branch(&self, branch: &str, stop: &Arc<AtomicBool>) -> Result<(), WorkspaceError> {
        let git = Git::at(&self.repository).with_stop(stop);
        git.run(&["check-ref-format", "--branch", branch])?;
        if git.succeeds(&["show-ref", "--verify", "--quiet", &branch_ref(branch)])? {
            let (branch, repository) = (branch.to_owned(), self.repository.clone());
            return Err(WorkspaceError::BranchExists { branch, repository });
        }
        Ok(())
    }
}

/// Creates the workspace and returns the working directory in it. After an error, the caller has to remove the
/// incomplete workspace with `remove`. If the daemon ends, the minder ends the git that makes the workspace. If `stop`
/// is set, git is ended too.
pub fn make(
    workspace: &Workspace,
    below: &Path,
    minder: &LockedMinder,
    stop: &Arc<AtomicBool>,
) -> Result<PathBuf, WorkspaceError> {
    let Workspace { path, repository, branch, base, .. } = workspace;
    let place = path.to_str().ok_or_else(|| WorkspaceError::NotUtf8(path.clone()))?;
    let git_at = |directory: &Path| Git::at(directory).with_minder(Some(minder)).with_stop(stop);
    match workspace.kind {
        IsolationKind::Worktree => {
            // If the record of an earlier attempt is left, git gives the new record another name.
            record::remove(workspace)?;
            record::restore(workspace)?;
            // The first command reads the records of all worktrees. It is short, so it has the short timeout.
            let add = ["worktree", "add", "--quiet", "--no-checkout", "--no-track", "-b", branch];
            git_at(repository).run(&[add.as_slice(), &["--", place, base]].concat())?;
            let checkout = ["reset", "--hard", "--quiet", "--no-recurse-submodules"];
            git_at(path).with_long_timeout().run(&checkout)?;
        }
        IsolationKind::Clone => {
            let (git, clone) = (git_at(repository), git_at(path));
            make_clone(&git.with_long_timeout(), &clone.with_long_timeout(), workspace, place)?;
        }
        IsolationKind::Shared => return Err(WorkspaceError::Shared),
    }
    working_directory(workspace, below)
}

/// Returns the agent's directory in the workspace.
pub fn working_directory(workspace: &Workspace, below: &Path) -> Result<PathBuf, WorkspaceError> {
    // `components` drops the slash that git appends.
    let working_directory: PathBuf = workspace.path.join(below).components().collect();
    match Root::open(&workspace.path).and_then(|root| root.directory(below)) {
        Ok(_) => Ok(working_directory),
        Err(NotOpened::Missing) => {
            Err(WorkspaceError::NoDirectory { below: below.to_owned(), base: workspace.base.clone() })
        }
        Err(error) => Err(WorkspaceError::NotUsable { directory: working_directory, error }),
    }
}

/// Clones the repository. Objects are copied and not linked, so that an agent can damage only its own copy. If the
/// repository has an `origin`, the clone gets this `origin`, so that an agent pushes to the same remote as a person.
fn make_clone(git: &Git, clone: &Git, workspace: &Workspace, place: &str) -> Result<(), WorkspaceError> {
    let source = workspace.repository.to_string_lossy();
    git.run(&["clone", "--quiet", "--no-hardlinks", "--no-checkout", "--template=", "--", &source, place])?;
    if let Ok(origin) = git.run(&["remote", "get-url", "origin"]) {
        clone.run(&["remote", "set-url", "origin", &origin])?;
    }
    clone.run(&["checkout", "--quiet", "--no-track", "-b", &workspace.branch, &workspace.base]).map(drop)
}

fn branch_ref(branch: &str) -> String {
    format!("refs/heads/{branch}")
}

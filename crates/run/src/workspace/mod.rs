//! Workspaces: a worktree or a clone for one job, made before it starts and removed after its end.
//!
//! The `git` program does the work, in the repository of the agent's directory. Nothing here is async: callers use a
//! blocking thread.
//!
//! A branch is removed with its workspace only if no commit is lost. A branch with commits that no other branch, tag or
//! remote has stays, whatever the outcome of the job: it is the job's result.

mod alternates;
mod diff;
mod git;
mod hidden;
mod remove;
mod setup;

use std::path::{Path, PathBuf};

use cowhand_core::workspace::{IsolationKind, IsolationRules};

use cowhand_core::workspace::Workspace;
use cowhand_system::beneath::{NotOpened, Root};
pub use diff::diff;
use git::Git;
pub use remove::{Left, branch_is_removed, remove};
pub use setup::{Setup, SetupFailure, set_up};

/// Basis of a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ground {
    /// Top of the working tree.
    pub repository: PathBuf,
    /// Agent's directory below that.
    pub below: PathBuf,
    /// Commit to begin with.
    pub base: String,
}

impl Ground {
    /// Examines the agent's directory. The error is a message that contains git's.
    pub fn of(directory: &Path, rules: &IsolationRules) -> Result<Self, String> {
        let git = Git::at(directory);
        let no =
            |why: String| format!("cannot make a {} of {}: {why}", rules.kind.as_str(), directory.display());
        let repository = git.run(&["rev-parse", "--show-toplevel"]).map_err(no)?;
        let below = git.run(&["rev-parse", "--show-prefix"]).map_err(no)?;
        let wanted = rules.base.as_deref().unwrap_or("HEAD");
        let commit = format!("{wanted}^{{commit}}");
        let base = git.run(&["rev-parse", "--verify", "--end-of-options", &commit]).map_err(|why| {
            no(if rules.base.is_none() {
                format!("it has no commits yet ({why})")
            } else {
                format!("it has no branch or commit {wanted:?} ({why})")
            })
        })?;
        Ok(Self { repository: PathBuf::from(repository), below: PathBuf::from(below), base })
    }

    /// Returns the first of these names that a branch can have, else the error of the first.
    pub fn first_free(&self, names: &[String]) -> Result<String, String> {
        let mut wrong = None;
        for name in names {
            match self.check_branch(name) {
                Ok(()) => return Ok(name.clone()),
                Err(why) => _ = wrong.get_or_insert(why),
            }
        }
        Err(wrong.unwrap_or_default())
    }

    fn check_branch(&self, branch: &str) -> Result<(), String> {
        let git = Git::at(&self.repository);
        git.run(&["check-ref-format", "--branch", branch])?;
        if git.says(&["show-ref", "--verify", "--quiet", &head(branch)])? {
            return Err(format!("a branch named {branch:?} exists already in {}", self.repository.display()));
        }
        Ok(())
    }
}

/// Makes the workspace and returns the working directory in it. After an error, `remove` removes what was made.
pub fn make(workspace: &Workspace, below: &Path) -> Result<PathBuf, String> {
    let Workspace { path, repository, branch, base, .. } = workspace;
    let place = path.to_str().ok_or_else(|| format!("{} is not a path in UTF-8", path.display()))?;
    let git = Git::at(repository).patient();
    match workspace.kind {
        IsolationKind::Worktree => {
            git.run(&["worktree", "add", "--quiet", "--no-track", "-b", branch, "--", place, base])?;
        }
        IsolationKind::Clone => clone(&git, workspace, place)?,
        IsolationKind::Shared => return Err("a shared directory is not made".to_owned()),
    }
    working_directory(workspace, below)
}

/// Returns the agent's directory in the workspace.
pub fn working_directory(workspace: &Workspace, below: &Path) -> Result<PathBuf, String> {
    // Without the slash that git appends.
    let working_directory: PathBuf = workspace.path.join(below).components().collect();
    match Root::open(&workspace.path).and_then(|root| root.directory(below)) {
        Ok(_) => Ok(working_directory),
        Err(NotOpened::Missing) => {
            Err(format!("there is no directory {} in {}", below.display(), workspace.base))
        }
        Err(error) => Err(format!("{} cannot be worked in: {error}", working_directory.display())),
    }
}

/// Clones the repository. Objects are copied and not linked, so that an agent can damage only its own. Its `origin` is
/// that of the repository, so that a push goes to the same place as a person's.
fn clone(git: &Git, workspace: &Workspace, place: &str) -> Result<(), String> {
    let source = workspace.repository.to_string_lossy();
    git.run(&["clone", "--quiet", "--no-hardlinks", "--no-checkout", "--template=", "--", &source, place])?;
    let clone = Git::at(&workspace.path).patient();
    if let Ok(origin) = git.run(&["remote", "get-url", "origin"]) {
        clone.run(&["remote", "set-url", "origin", &origin])?;
    }
    clone.run(&["checkout", "--quiet", "--no-track", "-b", &workspace.branch, &workspace.base]).map(drop)
}

fn head(branch: &str) -> String {
    format!("refs/heads/{branch}")
}

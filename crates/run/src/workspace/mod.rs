//! Workspaces: a worktree or a clone for one job, made before it starts and removed after its end.
//!
//! All of it is done by the `git` program, in the repository that the agent's directory belongs to. Nothing here is
//! async: callers have a thread to wait on.
//!
//! A branch goes with its workspace only if no commit goes with it. One that holds commits which no other branch, tag or
//! remote has stays, whatever the job came to: it is what the job made.

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
pub use remove::{Left, branch_has_gone, remove};
pub use setup::{Setup, SetupFailure, set_up};

/// What a workspace can be made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ground {
    /// The top of the working tree.
    pub repository: PathBuf,
    /// The agent's directory below that.
    pub below: PathBuf,
    /// The commit to begin with.
    pub base: String,
}

impl Ground {
    /// Looks at the agent's directory; the error is a sentence with git's words in it.
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

    /// The first of these names that a branch can have; else what is wrong with the first.
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

/// Makes it, and answers with the directory in it to work in. What was made of one that failed, `remove` removes.
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
    desk(workspace, below)
}

/// Where in the workspace the agent works.
pub fn desk(workspace: &Workspace, below: &Path) -> Result<PathBuf, String> {
    // Without the slash that git puts at the end.
    let desk: PathBuf = workspace.path.join(below).components().collect();
    match Root::open(&workspace.path).and_then(|root| root.directory(below)) {
        Ok(_) => Ok(desk),
        Err(NotOpened::Missing) => {
            Err(format!("there is no directory {} in {}", below.display(), workspace.base))
        }
        Err(error) => Err(format!("{} cannot be worked in: {error}", desk.display())),
    }
}

/// Objects are copied, not linked: an agent that damages its own harms nobody. Its `origin` is the repository's own, so
/// that a push goes where a person's would.
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

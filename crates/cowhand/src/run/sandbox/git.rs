//! A worktree's own repository lies elsewhere: which parts of it git writes when it commits.

use std::fs;
use std::path::{Path, PathBuf};

/// Of the worktree that this directory is in.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Worktree {
    /// Its top.
    pub(super) top: PathBuf,
    /// The repository that it shares.
    pub(super) common: PathBuf,
    /// Its own part of that.
    pub(super) own: PathBuf,
}

impl Worktree {
    /// None if it is none, or is not whole.
    pub(super) fn of(directory: &Path) -> Option<Self> {
        let top = directory.ancestors().find(|above| above.join(".git").exists())?;
        let text = fs::read_to_string(top.join(".git")).ok()?;
        let own = top.join(text.strip_prefix("gitdir:")?.trim()).canonicalize().ok()?;
        let common = fs::read_to_string(own.join("commondir")).ok()?;
        let common = own.join(common.trim()).canonicalize().ok()?;
        // One that leads out of its repository was not made by git.
        own.starts_with(common.join("worktrees")).then(|| Self { top: top.to_owned(), common, own })
    }

    /// Not its config and not its hooks: what stands there is run by whoever uses the repository next.
    pub(super) fn written(&self) -> Vec<PathBuf> {
        let parts = ["objects", "refs", "logs"].map(|part| self.common.join(part));
        parts.into_iter().chain([self.own.clone()]).collect()
    }
}

//! Errors of workspaces.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::shortage;
use cowhand_core::duration;
use cowhand_core::workspace::IsolationKind;
use cowhand_system::beneath::NotOpened;

/// Why a workspace cannot be created, compared or removed. The message is for people.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    #[error("cannot run git in {}: {error}", directory.display())]
    GitNotStarted { directory: PathBuf, error: io::Error },
    #[error("git {command} took longer than {}", duration::rounded_from_seconds(limit.as_secs()))]
    GitTookTooLong { command: String, limit: Duration },
    #[error("git was stopped")]
    GitStopped,
    /// Message of git, or its exit status.
    #[error("{0}")]
    Git(String),
    #[error("the output of git {0} was not read to its end")]
    GitUnread(String),
    #[error("the git config of {} is too long", .0.display())]
    ConfigTooLong(PathBuf),
    #[error("cannot make a {} of {}: {why}", kind.as_str(), directory.display())]
    NoBase { kind: IsolationKind, directory: PathBuf, why: Box<Self> },
    #[error("it has no commits yet ({0})")]
    NoCommits(Box<Self>),
    #[error("it has no branch or commit {base:?} ({why})")]
    NoSuchBase { base: String, why: Box<Self> },
    #[error("a branch named {branch:?} exists already in {}", repository.display())]
    BranchExists { branch: String, repository: PathBuf },
    #[error("{} is not a path in UTF-8", .0.display())]
    NotUtf8(PathBuf),
    #[error("a shared directory is not a workspace")]
    Shared,
    #[error("there is no directory {} in {base}", below.display())]
    NoDirectory { below: PathBuf, base: String },
    #[error("{} cannot be used as a working directory: {error}", directory.display())]
    NotUsable { directory: PathBuf, error: NotOpened },
    #[error("{} is not in {}", path.display(), folder.display())]
    Outside { path: PathBuf, folder: PathBuf },
    #[error("cannot remove {}: {error}", path.display())]
    NotRemoved { path: PathBuf, error: io::Error },
    #[error("its commits cannot be stored in {}: {why}", repository.display())]
    NotStored { repository: PathBuf, why: Box<Self> },
    #[error("it does not exist")]
    RepositoryMissing,
    #[error("cannot read {}: {error}", path.display())]
    NotReadable { path: PathBuf, error: NotOpened },
    #[error("{}: {error}", path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("{} is not a directory any more", .0.display())]
    Gone(PathBuf),
    #[error("it is not a git repository any more")]
    NoRepository,
    #[error("it belongs to another repository now")]
    OtherRepository,
    #[error("its index cannot be read: {0}")]
    Index(io::Error),
}

impl WorkspaceError {
    /// Returns a function that makes the error of a file that cannot be read, written or removed.
    pub(super) fn file(path: &std::path::Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |error| Self::File { path, error }
    }

    /// Returns true if git or a file could not be used at all, or if the machine has a shortage. Then the error says
    /// nothing about the workspace.
    pub(super) fn is_unrelated(&self) -> bool {
        matches!(
            self,
            Self::GitNotStarted { .. }
                | Self::GitTookTooLong { .. }
                | Self::GitStopped
                | Self::GitUnread(_)
                | Self::File { .. }
        ) || shortage::is_shortage(&self.to_string())
    }
}

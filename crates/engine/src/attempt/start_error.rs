//! Reasons why an attempt was not started.

use std::io;
use std::path::PathBuf;

use super::channel::ChannelError;
use super::credentials::CredentialsError;
use super::workspaces::WorkDirError;
use cowhand_core::duration;
use cowhand_core::id::ScheduleName;
use cowhand_run::launch::LaunchError;
use cowhand_run::sandbox::SandboxError;
use cowhand_store::StoreError;
use jiff::SignedDuration;

/// Why an attempt was not started. `AttemptTask::after_start` decides what each variant means for the job.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    /// The job waits if the machine has run out of a resource, or if access to the attempt's folder is denied. In all
    /// other cases the job fails.
    #[error(transparent)]
    CannotStart(#[from] CannotStart),
    /// The `setup` command of the workspace failed: the job fails.
    #[error("{0}")]
    SetupFailed(String),
    /// The store does not answer: the job waits.
    #[error("cannot read its session: {0}")]
    SessionNotRead(#[from] StoreError),
    /// The store does not answer: the job waits.
    #[error("cannot read which files its chat message has: {0}")]
    FilesNotRead(StoreError),
    /// Another node has settled the attempt: nothing is to be done.
    #[error("it is not started: its lease is lost, and the attempt is already settled")]
    LeaseLost,
    /// The preparation exceeded the timeout of the attempt: the attempt fails.
    #[error("its preparation took longer than {} (`timeout`), so its agent was not started", duration::exact(*.0))]
    TookTooLong(SignedDuration),
    /// A stop was requested before the start.
    #[error("it was stopped before its start")]
    Stopped,
}

/// What cowhand could not do to start an attempt. The message is for people.
#[derive(Debug, thiserror::Error)]
pub(super) enum CannotStart {
    #[error("its folder cannot be cleared: {0}")]
    FolderNotCleared(io::Error),
    #[error("{note}, but its folder cannot be cleared: {error}")]
    FolderNotClearedAgain { note: String, error: io::Error },
    #[error("its schedule `{0}` is no longer in the config, so the restrictions of the job are not known")]
    ScheduleRemoved(ScheduleName),
    #[error(transparent)]
    Directory(#[from] WorkDirError),
    #[error(
        "`system_prompt` contains a secret, and Codex accepts a system prompt only as an argument, which every user \
         of the machine can read; keep the secret in its variable and name the variable in the prompt"
    )]
    SecretInArgument,
    #[error(transparent)]
    Channel(#[from] ChannelError),
    #[error(transparent)]
    Launch(#[from] LaunchError),
    #[error("the job contains text of a stranger, and its strict sandbox (`trust.sandbox`) has `kind: none`")]
    NoStrictSandbox,
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    #[error("cannot pass the credentials to the keeper: {0}")]
    CredentialsNotWritten(io::Error),
    #[error("its private files cannot be written: {0}")]
    PrivateFiles(io::Error),
    #[error("{0}")]
    SetupNotStarted(String),
    #[error("`setup` cannot be run: {0}")]
    SetupThread(tokio::task::JoinError),
    #[error("cannot start a keeper in {}: {error}", folder.display())]
    Keeper { folder: PathBuf, error: io::Error },
}

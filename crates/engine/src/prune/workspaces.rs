//! The sizes of workspaces, and their removal.

use std::collections::{HashMap, HashSet};
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use cowhand_core::id::JobId;
use cowhand_core::workspace::Workspace;
use jiff::Timestamp;

use crate::state::StateFolder;
use cowhand_run::minder::LockedMinder;
use cowhand_run::workspace::{self, RemainingPart, WorkspaceError};
use cowhand_store::{Store, StoreError, StoredWorkspace, WorkspaceState};
use cowhand_system::{fault, tree};

/// Returns the workspaces of these jobs that have a directory on this machine. A branch without a directory is left
/// out.
pub(crate) async fn workspaces_of(
    store: &Store,
    node: String,
    jobs: impl IntoIterator<Item = JobId>,
) -> Result<Vec<StoredWorkspace>, StoreError> {
    let jobs: HashSet<JobId> = jobs.into_iter().collect();
    let mut workspaces = store.workspaces(node).await?;
    workspaces
        .retain(|stored| stored.state != WorkspaceState::Branch && jobs.contains(&stored.workspace.job));
    Ok(workspaces)
}

/// Returns the size in bytes of the workspace of each of these jobs on this machine. A workspace that cannot be
/// measured counts as 0.
pub(crate) async fn sizes(
    store: &Store,
    state: &StateFolder,
    jobs: impl IntoIterator<Item = JobId>,
) -> anyhow::Result<HashMap<JobId, u64>> {
    if !state.workspaces().exists() {
        return Ok(HashMap::new());
    }
    let workspaces = workspaces_of(store, state.node()?, jobs).await?;
    let measure = move || {
        let sizes = workspaces.into_iter().map(|stored| {
            let bytes = tree::size(&stored.workspace.path).unwrap_or_default();
            (stored.workspace.job, bytes)
        });
        sizes.collect()
    };
    Ok(tokio::task::spawn_blocking(measure).await?)
}

/// Why workspaces cannot be made, compared or removed. The message is for people.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WorkspacesError {
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The thread that called git has panicked.
    #[error(transparent)]
    Thread(#[from] tokio::task::JoinError),
    #[error("no diff could be made: {0}")]
    DiffNotMade(WorkspaceError),
    #[error("its diff cannot be kept: {0}")]
    DiffNotKept(io::Error),
    #[error("cannot use {}: {error}", folder.display())]
    Folder { folder: PathBuf, error: io::Error },
    #[error("{job} is removed, but its workspace is still there until the next start: {why}")]
    StillThere { job: JobId, why: Box<Self> },
}

/// Removes the workspaces of these jobs, except for jobs that the store still has. This is for callers without a
/// daemon: a daemon removes the workspaces of removed jobs without a request.
pub(crate) async fn remove_all(
    store: &Store,
    state: &StateFolder,
    jobs: Vec<JobId>,
    minder: &LockedMinder,
    now: Timestamp,
) -> Result<(), WorkspacesError> {
    if !state.workspaces().exists() {
        return Ok(());
    }
    let node = state.node()?;
    let mut result = Ok(());
    for stored in workspaces_of(store, node, jobs).await? {
        if stored.job_status.is_none() {
            let removed = remove(store, state, &stored.workspace, minder.clone(), now).await;
            result = result.and(removed.map_err(|why| WorkspacesError::StillThere {
                job: stored.workspace.job.clone(),
                why: Box::new(why),
            }));
        }
    }
    result
}

/// Removes the directory of a workspace, and its branch if the branch has no commits of its own. If this process ends,
/// the minder ends git.
pub(crate) async fn remove(
    store: &Store,
    state: &StateFolder,
    workspace: &Workspace,
    minder: LockedMinder,
    now: Timestamp,
) -> Result<(), WorkspacesError> {
    let (folder, removed) = (folder(state)?, workspace.clone());
    let remaining = run_git(move || workspace::remove(&removed, &folder, Some(&minder))).await;
    fault::point("workspace-removed");
    let result = match remaining? {
        RemainingPart::Nothing => store.forget_workspace(workspace).await,
        RemainingPart::Branch => store.set_workspace_state(workspace, WorkspaceState::Branch, now).await,
    };
    Ok(result?)
}

/// Returns the folder of all workspaces, with all links in its path resolved, because git prints resolved paths.
pub(crate) fn folder(state: &StateFolder) -> Result<PathBuf, WorkspacesError> {
    let folder = state.workspaces();
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
    made.and_then(|()| folder.canonicalize()).map_err(|error| WorkspacesError::Folder { folder, error })
}

/// Runs a function that calls git on a blocking thread. A panic of the function becomes an error, because an error of a
/// workspace must not end the caller.
pub(crate) async fn run_git<T, E>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, WorkspacesError>
where
    T: Send + 'static,
    E: Into<WorkspacesError> + Send + 'static,
{
    tokio::task::spawn_blocking(work).await?.map_err(Into::into)
}

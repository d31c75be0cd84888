//! Workspaces: directories that each belong to one job, on one node.
//!
//! A row is written before the directory is made, and removed after the directory is removed, so that a killed process
//! leaves no unknown directory. The column `since` is the time at which the row was recorded or its state was set;
//! [`Store::give_workspace`] does not change it.

use std::path::{Path, PathBuf};

use cowhand_core::id::JobId;
use cowhand_core::job::JobStatus;
use cowhand_core::workspace::Workspace;
use jiff::Timestamp;

use super::database::db::{Row, Tx, args};
use super::database::dialect::statements;
use super::{Store, StoreError};

statements! {
    RECORD_WORKSPACE =
        sqlite "insert into workspaces (node, path, job_id, agent, kind, repository, branch, base, state, since) \
        values ($1, $2, $3, $4, $5, $6, $7, $8, 'making', $9) on conflict (node, path) do update set job_id = excluded.job_id, \
        agent = excluded.agent, kind = excluded.kind, repository = excluded.repository, branch = excluded.branch, \
        base = excluded.base, state = 'making', keep_until = null, since = excluded.since"
        postgres "insert into workspaces (node, path, job_id, agent, kind, repository, branch, base, state, since) \
        values ($1, $2, $3, $4, $5, $6, $7, $8, 'making', $9) on conflict (node, md5(path)) do update set job_id = excluded.job_id, \
        agent = excluded.agent, kind = excluded.kind, repository = excluded.repository, branch = excluded.branch, \
        base = excluded.base, state = 'making', keep_until = null, since = excluded.since";
    GIVE_WORKSPACE = same "update workspaces set job_id = $3, state = 'used', keep_until = null where node = $1 and path = $2 \
        and state in ('used', 'kept') and (job_id = $3 or not exists (select 1 from jobs where jobs.id = workspaces.job_id \
        and jobs.status in ('pending', 'running')))";
    PASS_WORKSPACE_ON = same "update workspaces set job_id = $2, state = 'used', keep_until = null where job_id = $1 \
        and state in ('used', 'kept')";
    GET_WORKSPACE = same "select workspaces.*, jobs.status from workspaces left join jobs on jobs.id = workspaces.job_id \
        where workspaces.node = $1 and workspaces.path = $2";
    WORKSPACE_OF_JOB = same "select workspaces.*, jobs.status from workspaces left join jobs on jobs.id = workspaces.job_id \
        where workspaces.node = $1 and workspaces.job_id = $2 and workspaces.state <> 'branch' order by workspaces.since desc";
    WORKSPACE_ANYWHERE = same "select workspaces.*, jobs.status from workspaces left join jobs on jobs.id = workspaces.job_id \
        where workspaces.job_id = $1 order by workspaces.since desc, workspaces.path";
    WORKSPACES_OF_NODE = same "select workspaces.*, jobs.status from workspaces left join jobs on jobs.id = workspaces.job_id \
        where workspaces.node = $1 order by workspaces.since desc, workspaces.path";
    SET_WORKSPACE_STATE = same "update workspaces set state = $3, keep_until = $4, since = $5 where node = $1 and path = $2";
    DROP_WORKSPACE = same "delete from workspaces where node = $1 and path = $2";
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkspaceState {
    /// The directory may be incomplete.
    Making,
    /// The directory is complete, and a job uses it or has just ended.
    Used,
    /// The job has ended. With `until`, the workspace is kept at least until that time, because the job's session may
    /// continue in it. Without `until`, the workspace is kept because of the key `cleanup` of the config.
    Kept { until: Option<Timestamp> },
    /// The directory is removed. The branch is kept, because it contains commits that exist nowhere else.
    Branch,
}

/// A workspace with its state, and the status of its job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredWorkspace {
    pub workspace: Workspace,
    pub state: WorkspaceState,
    /// Status of the job; `None` if the job was removed from the store.
    pub job_status: Option<JobStatus>,
}

impl StoredWorkspace {
    /// Returns true if the job of the workspace has not ended.
    pub const fn is_live(&self) -> bool {
        matches!(self.job_status, Some(JobStatus::Pending | JobStatus::Running))
    }
}

/// Gives the workspace of a job that ends to the job of its next turn, so that nobody removes the workspace before that
/// job starts.
pub(super) async fn pass_on(tx: &mut Tx<'_>, from: &JobId, to: &JobId) -> Result<(), StoreError> {
    tx.execute(PASS_WORKSPACE_ON, args![from.as_str(), to.as_str()]).await.map(drop)
}

impl Store {
    /// Records a workspace that is about to be made.
    pub async fn record_workspace(&self, workspace: Workspace, now: Timestamp) -> Result<(), StoreError> {
        let Workspace { node, path, job, agent, kind, repository, branch, base } = workspace;
        let args = args![
            node,
            text(&path),
            job.as_str(),
            agent.as_str(),
            kind.as_str(),
            text(&repository),
            branch,
            base,
            now
        ];
        self.write(move |tx| Box::pin(async move { tx.execute(RECORD_WORKSPACE, args).await.map(drop) }))
            .await
    }

    /// Gives a workspace to `job`. Returns `None` if a live job other than `job` has it, or if its directory is not
    /// complete or already removed.
    pub async fn give_workspace(
        &self,
        node: String,
        path: PathBuf,
        job: JobId,
    ) -> Result<Option<Workspace>, StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                let path = text(&path);
                if tx.execute(GIVE_WORKSPACE, args![node.as_str(), path.as_str(), job.as_str()]).await? == 0 {
                    return Ok(None);
                }
                let row = tx.one(GET_WORKSPACE, args![node, path]).await?;
                row.as_ref().map(read).transpose().map(|known| known.map(|known| known.workspace))
            })
        })
        .await
    }

    /// Returns the workspace of a job on this node; of several workspaces, the one with the latest `since`. Workspaces
    /// of which only the branch is left do not count. Returns `None` if there is no workspace.
    pub async fn workspace_of(
        &self,
        node: String,
        job: JobId,
    ) -> Result<Option<StoredWorkspace>, StoreError> {
        self.read(move |tx| {
            Box::pin(async move {
                tx.all(WORKSPACE_OF_JOB, args![node, job.as_str()]).await?.first().map(read).transpose()
            })
        })
        .await
    }

    /// Returns the workspace of a job on any node, even if only its branch is left; of several workspaces, the one with
    /// the latest `since`.
    pub async fn workspace_anywhere(&self, job: JobId) -> Result<Option<StoredWorkspace>, StoreError> {
        self.read(move |tx| {
            Box::pin(async move {
                tx.all(WORKSPACE_ANYWHERE, args![job.as_str()]).await?.first().map(read).transpose()
            })
        })
        .await
    }

    /// Returns all workspaces of a node, the one with the latest `since` first.
    pub async fn workspaces(&self, node: String) -> Result<Vec<StoredWorkspace>, StoreError> {
        self.read(move |tx| {
            Box::pin(async move { tx.all(WORKSPACES_OF_NODE, args![node]).await?.iter().map(read).collect() })
        })
        .await
    }

    /// Stores the state of a workspace.
    pub async fn set_workspace_state(
        &self,
        workspace: &Workspace,
        state: WorkspaceState,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let (state_name, until) = match state {
            WorkspaceState::Making => ("making", None),
            WorkspaceState::Used => ("used", None),
            WorkspaceState::Kept { until } => ("kept", until),
            WorkspaceState::Branch => ("branch", None),
        };
        let args = args![workspace.node.as_str(), text(&workspace.path), state_name, until, now];
        self.write(move |tx| Box::pin(async move { tx.execute(SET_WORKSPACE_STATE, args).await.map(drop) }))
            .await
    }

    /// Removes the row of a removed workspace.
    pub async fn forget_workspace(&self, workspace: &Workspace) -> Result<(), StoreError> {
        let args = args![workspace.node.as_str(), text(&workspace.path)];
        self.write(move |tx| Box::pin(async move { tx.execute(DROP_WORKSPACE, args).await.map(drop) })).await
    }
}

/// Converts a path to text. A workspace is made only if its path is valid text.
fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn read(row: &Row) -> Result<StoredWorkspace, StoreError> {
    let state: String = row.get("state")?;
    let path = |column| row.get::<String>(column).map(PathBuf::from);
    Ok(StoredWorkspace {
        workspace: Workspace {
            node: row.get("node")?,
            path: path("path")?,
            job: row.parse("job_id")?,
            agent: row.parse("agent")?,
            kind: row.parse("kind")?,
            repository: path("repository")?,
            branch: row.get("branch")?,
            base: row.get("base")?,
        },
        state: match state.as_str() {
            "making" => WorkspaceState::Making,
            "used" => WorkspaceState::Used,
            "kept" => WorkspaceState::Kept { until: row.time_opt("keep_until")? },
            "branch" => WorkspaceState::Branch,
            other => return Err(row.unreadable("state", other)),
        },
        job_status: row.parse_opt("status")?,
    })
}

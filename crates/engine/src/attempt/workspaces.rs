//! Workspaces from creation to removal: they are made for a job, passed on with a session, and kept or removed
//! afterwards.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cowhand_core::id::{AgentName, JobId};
use cowhand_core::job::{Job, JobRecord, JobStatus};
use cowhand_core::roster::Agent;
use cowhand_core::session::SessionPolicy;
use cowhand_core::workspace::{Cleanup, IsolationKind, IsolationRules, Workspace};
use jiff::Timestamp;
use tokio::sync::MutexGuard;
use tracing::{info, warn};

use super::diff;
use super::outcomes;
use super::session::NotContinued;
use super::stoppable::Stoppable;
use crate::context::Engine;
use crate::prune::workspaces::{self as removal, WorkspacesError, run_git};
use crate::secrets::redactor_over;
use cowhand_run::workspace::{self, WorkspaceBase, WorkspaceError};
use cowhand_store::{StoreError, StoredWorkspace, WorkspaceState};
use cowhand_system::beneath::{NotOpened, Root};
use cowhand_system::blocking::run_blocking;
use cowhand_system::remove::is_missing;
use cowhand_system::{fault, tree};

/// Time in which the git commands of an earlier daemon have to end.
const EARLIER_GIT_TIMEOUT: Duration = Duration::from_secs(15);

/// The directory in which an agent works.
#[derive(Debug)]
pub(super) struct WorkDir {
    pub(super) directory: PathBuf,
    /// True if `setup` has to run before the attempt.
    pub(super) needs_setup: bool,
}

/// Why a job has no directory to work in. The message is for people.
#[derive(Debug, thiserror::Error)]
pub(super) enum WorkDirError {
    #[error("cannot read its workspace from the store: {0}")]
    NotKnown(StoreError),
    #[error("cannot store its workspace: {0}")]
    NotWritten(StoreError),
    #[error("it was stopped while its workspace was made")]
    Stopped,
    #[error(transparent)]
    Workspaces(#[from] WorkspacesError),
}

/// Returns the agent's own directory, or the job's workspace, which is made if it does not exist.
pub(super) async fn work_dir(
    engine: &Arc<Engine>,
    job: &Job,
    agent: &Agent,
    stoppable: &Stoppable,
) -> Result<WorkDir, WorkDirError> {
    let rules = &agent.isolation;
    if rules.kind == IsolationKind::Shared {
        return Ok(WorkDir { directory: agent.directory.clone(), needs_setup: false });
    }
    let base = {
        let (directory, rules, stop) = (agent.directory.clone(), rules.clone(), stoppable.flag());
        run_git(move || WorkspaceBase::of(&directory, &rules, &stop)).await?
    };
    let node = engine.home.node.clone();
    let earlier = engine.store.workspace_of(node.clone(), job.id().clone()).await;
    let earlier = earlier.map_err(WorkDirError::NotKnown)?;
    let folder = folder(engine)?;
    if let Some(stored) = earlier {
        let is_complete = stored.state != WorkspaceState::Making;
        match workspace::working_directory(&stored.workspace, &base.below) {
            Ok(directory) if is_complete => return Ok(WorkDir { directory, needs_setup: true }),
            // The workspace cannot be read now, but it may be intact, so it is not removed.
            Err(why @ WorkspaceError::NotUsable { error: NotOpened::Io(_), .. }) if is_complete => {
                return Err(WorkspacesError::from(why).into());
            }
            // The workspace is incomplete, or its agent removed it or replaced it by a link.
            _ => {
                let folder = folder.clone();
                let _guard = git_guard(engine, stored.workspace.kind, stoppable).await?;
                let minder = engine.git_minder();
                run_git(move || workspace::remove(&stored.workspace, &folder, Some(&minder))).await?;
            }
        }
    }
    let below = base.below.clone();
    let names = branches(&rules.branch(&agent.name, job.id()), job.attempts());
    let stop = stoppable.flag();
    let (base, branch) = run_git(move || {
        let branch = base.first_free(&names, &stop)?;
        Ok::<_, WorkspaceError>((base, branch))
    })
    .await?;
    let workspace = Workspace {
        node,
        path: folder.join(job.id().as_str()),
        job: job.id().clone(),
        agent: agent.name.clone(),
        kind: rules.kind,
        repository: base.repository,
        branch,
        base: base.base,
    };
    make(engine, workspace, below, folder, stoppable).await
}

/// Waits until the git commands that an earlier daemon started for workspaces have ended, at most for
/// [`EARLIER_GIT_TIMEOUT`]. The minder of such a command ends the command when its daemon has ended.
pub(crate) async fn wait_for_earlier_git(engine: &Engine) {
    if is_missing(&engine.home.state.git_lock()) {
        return;
    }
    let minder = engine.git_minder();
    match run_git(move || minder.wait_for_earlier(EARLIER_GIT_TIMEOUT)).await {
        Ok(true) => {}
        Ok(false) => {
            warn!("a git of an earlier daemon still runs and does not end; its workspace may not be usable");
        }
        Err(error) => warn!("cannot find out whether a git of an earlier daemon still runs: {error}"),
    }
}

/// Returns the possible names of a branch: `name`, and for a later attempt a second name, because an earlier attempt
/// may have left commits on the first branch.
fn branches(name: &str, attempt: u32) -> Vec<String> {
    let later = (attempt > 1).then(|| format!("{name}-{attempt}"));
    [name.to_owned()].into_iter().chain(later).collect()
}

async fn make(
    engine: &Arc<Engine>,
    workspace: Workspace,
    below: PathBuf,
    folder: PathBuf,
    stoppable: &Stoppable,
) -> Result<WorkDir, WorkDirError> {
    let (store, now) = (&engine.store, engine.clock.now());
    let not_written = WorkDirError::NotWritten;
    store.record_workspace(workspace.clone(), now).await.map_err(not_written)?;
    fault::point("workspace-noted");
    let stored = workspace.clone();
    let guard = git_guard(engine, workspace.kind, stoppable).await?;
    let (minder, stop) = (engine.git_minder(), stoppable.flag());
    let make_directory = run_git(move || {
        workspace::make(&workspace, &below, &minder, &stop).inspect_err(|_| {
            // If this removal fails, the next sweep removes the workspace.
            let _ = workspace::remove(&workspace, &folder, Some(&minder));
        })
    });
    let directory = make_directory.await?;
    drop(guard);
    store.set_workspace_state(&stored, WorkspaceState::Used, now).await.map_err(not_written)?;
    Ok(WorkDir { directory, needs_setup: true })
}

/// Prevents two worktrees from being made or removed at the same time. To make or remove a worktree, git reads the
/// records of all worktrees, and fails if a record is incomplete.
async fn git_guard<'a>(
    engine: &'a Engine,
    kind: IsolationKind,
    stoppable: &Stoppable,
) -> Result<Option<MutexGuard<'a, ()>>, WorkDirError> {
    match kind {
        IsolationKind::Worktree => stoppable
            .unless_stopped(engine.workspace_lock.lock())
            .await
            .map(Some)
            .map_err(|_| WorkDirError::Stopped),
        IsolationKind::Clone | IsolationKind::Shared => Ok(None),
    }
}

/// Gives the workspace of this directory to the job, if no other job uses it. The inner error is the reason why the
/// session of that directory cannot continue.
pub(super) async fn take(
    engine: &Arc<Engine>,
    directory: &Path,
    job: &JobId,
) -> Result<Result<Option<PathBuf>, NotContinued>, StoreError> {
    let _guard = engine.workspace_lock.lock().await;
    let Ok(folder) = folder(engine) else { return Ok(Err(NotContinued::NoWorkspaces)) };
    let below = directory.strip_prefix(&folder).ok();
    let exists = |below: &&Path| Root::open(&folder).and_then(|root| root.directory(below)).is_ok();
    let name = below.filter(exists).and_then(|below| below.components().next());
    let Some(name) = name else {
        return Ok(Err(NotContinued::WorkspaceGone(directory.to_owned())));
    };
    let (node, path) = (engine.home.node.clone(), folder.join(name));
    Ok(match engine.store.give_workspace(node, path, job.clone()).await? {
        Some(_) => Ok(Some(directory.to_owned())),
        None => Err(NotContinued::WorkspaceBusy),
    })
}

/// Removes or keeps the workspace after an attempt, according to the agent's `cleanup`, if the job has ended.
pub(super) async fn tidy(engine: &Arc<Engine>, job: &JobId) {
    match engine.store.workspace_of(engine.home.node.clone(), job.clone()).await {
        Ok(Some(stored)) if !stored.is_live() => keep_or_remove(engine, &stored, true).await,
        Ok(_) => {}
        Err(error) => look_later(engine, job, error),
    }
}

/// Removes everything that no job on this machine needs any more: remains of a crash, workspaces that were kept long
/// enough or exceed the limit, workspaces of jobs that are no longer in the store, and branches whose commits exist
/// elsewhere by now.
pub(crate) async fn sweep(engine: Arc<Engine>) {
    let stored = match engine.store.workspaces(engine.home.node.clone()).await {
        Ok(stored) => stored,
        Err(error) => return warn!("cannot read the workspaces from the store: {error}"),
    };
    let now = engine.clock.now();
    let mut kept: HashMap<AgentName, Vec<StoredWorkspace>> = HashMap::new();
    for stored in stored.into_iter().filter(|stored| !stored.is_live()) {
        match stored.state {
            WorkspaceState::Branch => forget_removed_branch(&engine, stored).await,
            WorkspaceState::Kept { .. } if stored.job_status.is_none() || is_gone(&stored) => {
                remove(&engine, &stored).await;
            }
            WorkspaceState::Kept { until: Some(until) } if until <= now => {
                keep_or_remove(&engine, &stored, false).await;
            }
            WorkspaceState::Kept { .. } => {
                // An earlier daemon may have ended before it could make the diff.
                let diff = diff::keep_missing(&engine, &stored.workspace).await;
                note(&engine, &stored.workspace.job, diff);
                kept.entry(stored.workspace.agent.clone()).or_default().push(stored);
            }
            WorkspaceState::Making => remove(&engine, &stored).await,
            WorkspaceState::Used => keep_or_remove(&engine, &stored, true).await,
        }
    }
    for (agent, kept) in kept {
        enforce_max_kept(&engine, &agent, kept).await;
    }
}

/// Keeps the newest of the `kept` workspaces that fit into `max_kept` together, and removes the others. `kept` is
/// in the order of the store, the newest first.
async fn enforce_max_kept(engine: &Arc<Engine>, agent: &AgentName, kept: Vec<StoredWorkspace>) {
    // The largest limit of the agent and its schedules applies, because their workspaces are counted together.
    let loaded = engine.loaded();
    let agent = loaded.roster.agent(agent);
    let max_bytes = agent.into_iter().flat_map(Agent::isolations).map(|(_, rules)| rules.max_kept()).max();
    let max_bytes = max_bytes.unwrap_or_else(|| IsolationRules::default().max_kept());
    let mut sum: u64 = 0;
    for stored in kept {
        let path = stored.workspace.path.clone();
        let size = run_git(move || tree::size(&path)).await;
        sum = sum.saturating_add(size.unwrap_or_else(|why| {
            warn!(job = %stored.workspace.job, "cannot measure its workspace, so it does not count towards \
                                                `max_kept`: {why}");
            0
        }));
        if sum > max_bytes {
            info!(job = %stored.workspace.job, "removing its workspace: the kept workspaces use more than `max_kept`");
            remove(engine, &stored).await;
        }
    }
}

/// Keeps or removes the workspace of an ended job, according to `cleanup`. If `for_session` is true, the workspace is
/// kept at least while the job's session may continue.
async fn keep_or_remove(engine: &Arc<Engine>, stored: &StoredWorkspace, for_session: bool) {
    let Some(status) = stored.job_status else { return remove(engine, stored).await };
    // An incomplete workspace has nothing to keep.
    if stored.state == WorkspaceState::Making {
        return remove(engine, stored).await;
    }
    let roster = Arc::clone(&engine.loaded().roster);
    // For an agent that was removed from the config, the workspaces of failed and cancelled jobs are kept.
    let agent = roster.agent(&stored.workspace.agent);
    let job = match engine.store.job(stored.workspace.job.clone()).await {
        Ok(job) => job,
        Err(error) => return look_later(engine, &stored.workspace.job, error),
    };
    let schedule = job.as_ref().and_then(Job::schedule);
    let rules = agent.map(|agent| agent.isolation_of(schedule)).unwrap_or_default();
    let now = engine.clock.now();
    let until = match agent.filter(|_| for_session) {
        Some(agent) => job.and_then(|job| session_until(job, agent)).filter(|until| *until > now),
        None => None,
    };
    let keep = until.is_some()
        || match rules.cleanup {
            Cleanup::Always => false,
            Cleanup::KeepOnFailure => status != JobStatus::Completed,
            Cleanup::Never => true,
        };
    if !keep || is_gone(stored) {
        return remove(engine, stored).await;
    }
    let state = WorkspaceState::Kept { until };
    if let Err(error) = engine.store.set_workspace_state(&stored.workspace, state, now).await {
        return look_later(engine, &stored.workspace.job, error);
    }
    let kept = diff::keep_missing(engine, &stored.workspace).await;
    note(engine, &stored.workspace.job, kept);
}

/// Returns true if the directory does not exist any more: somebody removed it, or the store was restored from a backup
/// that was made before its removal.
fn is_gone(stored: &StoredWorkspace) -> bool {
    is_missing(&stored.workspace.path)
}

/// Records that the daemon has to look at the workspace of a job again, because the store does not answer now.
fn look_later(engine: &Engine, job: &JobId, error: StoreError) {
    let reason = WorkspacesError::from(error).to_string();
    if engine.unfinished.keep(job, reason.clone()) {
        warn!(%job, "its workspace is looked at later: {reason}");
    }
}

/// Records whether a workspace is finished. An unfinished workspace stays, and the daemon tries again.
fn note(engine: &Engine, job: &JobId, result: Result<(), WorkspacesError>) {
    let Err(why) = result else { return engine.unfinished.finish(job) };
    let reason = redactor_over(&engine.loaded(), None).redact(&why.to_string()).into_owned();
    // There are many tries, so a reason is logged only if it is new.
    if engine.unfinished.keep(job, reason.clone()) {
        warn!(%job, "its workspace is kept, and looked at again later: {reason}");
    }
}

/// Tries again to keep the diffs and to remove the workspaces for which that failed.
pub(crate) async fn retry(engine: Arc<Engine>) {
    for job in engine.unfinished.jobs() {
        let stored = match engine.store.workspace_of(engine.home.node.clone(), job.clone()).await {
            Ok(Some(stored)) if !stored.is_live() => stored,
            // The workspace is removed, or a job that has not ended uses it.
            Ok(_) => {
                engine.unfinished.finish(&job);
                continue;
            }
            Err(error) => return warn!("cannot look at the workspaces: {error}"),
        };
        match stored.state {
            WorkspaceState::Kept { .. } if stored.job_status.is_some() => {
                let kept = diff::keep_missing(&engine, &stored.workspace).await;
                note(&engine, &job, kept);
            }
            WorkspaceState::Used => keep_or_remove(&engine, &stored, true).await,
            WorkspaceState::Kept { .. } | WorkspaceState::Making => remove(&engine, &stored).await,
            WorkspaceState::Branch => engine.unfinished.finish(&job),
        }
    }
}

/// Returns the time until which the job's session may continue. A session needs its directory to continue.
fn session_until(job: Job, agent: &Agent) -> Option<Timestamp> {
    let session = agent.session_of(job.chat());
    if session.policy == SessionPolicy::Fresh {
        return None;
    }
    job.session_id()?;
    JobRecord::from(job).finished_at?.checked_add(session.expires).ok()
}

async fn remove(engine: &Arc<Engine>, stored: &StoredWorkspace) {
    let _guard = engine.workspace_lock.lock().await;
    let workspace = stored.workspace.clone();
    // Another job may have taken the workspace meanwhile.
    match engine.store.workspace_of(workspace.node.clone(), workspace.job.clone()).await {
        Ok(Some(current)) if current.workspace.path == workspace.path && !current.is_live() => {}
        Ok(_) => return,
        Err(error) => return look_later(engine, &workspace.job, error),
    }
    let removed = remove_with_diff_kept(engine, stored).await;
    note(engine, &workspace.job, removed);
}

/// Removes a workspace after its diff is kept. A job that was pruned or deleted has no diff.
async fn remove_with_diff_kept(
    engine: &Arc<Engine>,
    stored: &StoredWorkspace,
) -> Result<(), WorkspacesError> {
    if stored.job_status.is_some() && stored.state != WorkspaceState::Making {
        diff::keep_missing(engine, &stored.workspace).await?;
    }
    let (minder, workspace) = (engine.git_minder(), &stored.workspace);
    removal::remove(&engine.store, &engine.home.state, workspace, minder, engine.clock.now()).await?;
    let job = engine.store.job(workspace.job.clone()).await?;
    let (state, attempts) = (engine.home.state.clone(), job.map_or(0, |job| job.attempts()));
    let id = workspace.job.clone();
    if let Err(error) = run_blocking(move || outcomes::remove_folders(&state, &id, attempts)).await {
        warn!(job = %workspace.job, "cannot remove the folders of its attempts: {error}");
    }
    Ok(())
}

/// Removes the workspaces of jobs that were pruned or deleted.
pub(crate) async fn remove_workspaces_of(engine: Arc<Engine>, jobs: Vec<JobId>) {
    match removal::workspaces_of(&engine.store, engine.home.node.clone(), jobs).await {
        Ok(stored) => {
            for stored in stored.iter().filter(|stored| stored.job_status.is_none()) {
                remove(&engine, stored).await;
            }
        }
        Err(error) => warn!("cannot read the workspaces of removed jobs; trying again later: {error}"),
    }
}

async fn forget_removed_branch(engine: &Arc<Engine>, stored: StoredWorkspace) {
    let (workspace, is_pruned) = (stored.workspace, stored.job_status.is_none());
    let is_removed = {
        let (workspace, minder) = (workspace.clone(), engine.git_minder());
        run_git(move || workspace::remove_branch_if_stored(&workspace, Some(&minder))).await
    };
    let result = match is_removed {
        Ok(true) => engine.store.forget_workspace(&workspace).await,
        // Nobody waits for the repository of a job that is removed.
        Ok(false) if is_pruned && is_missing(&workspace.repository) => {
            engine.store.forget_workspace(&workspace).await
        }
        Ok(false) => return,
        Err(why) => return warn!(job = %workspace.job, "cannot check its branch: {why}"),
    };
    if let Err(error) = result {
        warn!(job = %workspace.job, "cannot store that its branch is removed; trying again later: {error}");
    }
}

fn folder(engine: &Engine) -> Result<PathBuf, WorkspacesError> {
    removal::folder(&engine.home.state)
}

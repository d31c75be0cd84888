//! The life of workspaces: made for a job, passed on with a session, kept or removed after the end.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cowhand_core::id::{AgentName, JobId};
use cowhand_core::job::{Job, JobRecord, JobStatus};
use cowhand_core::roster::Agent;
use cowhand_core::session::SessionPolicy;
use cowhand_core::workspace::{Cleanup, IsolationKind, IsolationRules, Workspace};
use jiff::Timestamp;
use tracing::{info, warn};

use super::session::NotContinued;
use crate::context::Engine;
use crate::prune::files;
use crate::prune::workspaces::{self as removal, WorkspacesError, run_git};
use crate::view::write_whole;
use cowhand_run::redact::Redactor;
use cowhand_run::workspace::{self, Ground, WorkspaceError};
use cowhand_store::{KnownWorkspace, StoreError, WorkspaceState};
use cowhand_system::beneath::Root;
use cowhand_system::fault;

/// The directory in which an agent works.
#[derive(Debug)]
pub(super) struct WorkDir {
    pub(super) directory: PathBuf,
    /// True if `setup` has not run in it.
    pub(super) fresh: bool,
}

/// Why a job has no directory to work in. The message is for people.
#[derive(Debug, thiserror::Error)]
pub(super) enum WorkDirError {
    #[error("cannot look for its workspace: {0}")]
    NotKnown(StoreError),
    #[error("cannot write down its workspace: {0}")]
    NotWritten(StoreError),
    #[error(transparent)]
    Workspaces(#[from] WorkspacesError),
}

/// Returns the agent's own directory, or the job's workspace, which is made if it does not exist.
pub(super) async fn work_dir(
    engine: &Arc<Engine>,
    job: &Job,
    agent: &Agent,
) -> Result<WorkDir, WorkDirError> {
    let rules = &agent.isolation;
    if rules.kind == IsolationKind::Shared {
        return Ok(WorkDir { directory: agent.directory.clone(), fresh: false });
    }
    let ground = {
        let (directory, rules) = (agent.directory.clone(), rules.clone());
        run_git(move || Ground::of(&directory, &rules)).await?
    };
    let node = engine.home.node.clone();
    let earlier = engine.store.workspace_of(node.clone(), job.id().clone()).await;
    let earlier = earlier.map_err(WorkDirError::NotKnown)?;
    let folder = folder(engine)?;
    if let Some(known) = earlier {
        let whole = known.state != WorkspaceState::Making;
        match workspace::working_directory(&known.workspace, &ground.below) {
            Ok(directory) if whole => return Ok(WorkDir { directory, fresh: true }),
            // The workspace is incomplete, or its agent removed it.
            _ => {
                let folder = folder.clone();
                run_git(move || workspace::remove(&known.workspace, &folder)).await?;
            }
        }
    }
    let below = ground.below.clone();
    let names = branches(&rules.branch(&agent.name, job.id()), job.attempts());
    let (ground, branch) = run_git(move || {
        let branch = ground.first_free(&names)?;
        Ok::<_, WorkspaceError>((ground, branch))
    })
    .await?;
    let workspace = Workspace {
        node,
        path: folder.join(job.id().as_str()),
        job: job.id().clone(),
        agent: agent.name.clone(),
        kind: rules.kind,
        repository: ground.repository,
        branch,
        base: ground.base,
    };
    make(engine, workspace, below, folder).await
}

/// Returns the branch name, and another one for a later attempt, because an earlier one may have left commits on the first.
fn branches(name: &str, attempt: u32) -> Vec<String> {
    let later = (attempt > 1).then(|| format!("{name}-{attempt}"));
    [name.to_owned()].into_iter().chain(later).collect()
}

async fn make(
    engine: &Arc<Engine>,
    workspace: Workspace,
    below: PathBuf,
    folder: PathBuf,
) -> Result<WorkDir, WorkDirError> {
    let (store, now) = (&engine.store, engine.clock.now());
    let unwritten = WorkDirError::NotWritten;
    store.note_workspace(workspace.clone(), now).await.map_err(unwritten)?;
    fault::place("workspace-noted");
    let whole = workspace.clone();
    // git reads the records of all worktrees when it makes or removes one, and fails if one of them is incomplete.
    let alone = match workspace.kind {
        IsolationKind::Worktree => Some(engine.workspaces.lock().await),
        IsolationKind::Clone | IsolationKind::Shared => None,
    };
    let made = run_git(move || {
        workspace::make(&workspace, &below).inspect_err(|_| {
            // The next sweep removes what is left.
            let _ = workspace::remove(&workspace, &folder);
        })
    });
    let directory = made.await?;
    drop(alone);
    store.keep_workspace(&whole, WorkspaceState::Used, now).await.map_err(unwritten)?;
    Ok(WorkDir { directory, fresh: true })
}

/// Passes the workspace of this directory on to the job, if no other job uses it. The inner error says why the session of
/// that directory cannot continue.
pub(super) async fn take(
    engine: &Arc<Engine>,
    directory: &Path,
    job: &JobId,
) -> Result<Result<Option<PathBuf>, NotContinued>, StoreError> {
    let _alone = engine.workspaces.lock().await;
    let Ok(folder) = folder(engine) else { return Ok(Err(NotContinued::NoWorkspaces)) };
    let below = directory.strip_prefix(&folder).ok();
    let is_there = |below: &&Path| Root::open(&folder).and_then(|root| root.directory(below)).is_ok();
    let name = below.filter(is_there).and_then(|below| below.components().next());
    let Some(name) = name else {
        return Ok(Err(NotContinued::WorkspaceGone(directory.to_owned())));
    };
    let (node, path) = (engine.home.node.clone(), folder.join(name));
    Ok(match engine.store.take_workspace(node, path, job.clone()).await? {
        Some(_) => Ok(Some(directory.to_owned())),
        None => Err(NotContinued::WorkspaceBusy),
    })
}

/// Stores the job's diff beside its output. A failure is only logged and does not delay the job.
pub(super) async fn keep_diff(engine: &Arc<Engine>, job: &JobId, redactor: &Redactor) {
    let known = match engine.store.workspace_of(engine.home.node.clone(), job.clone()).await {
        Ok(Some(known)) => known.workspace,
        Ok(None) => return,
        Err(error) => return warn!(%job, "its diff is not kept: {error}"),
    };
    let since = match engine.store.job(job.clone()).await {
        Ok(found) => found.map_or(Timestamp::UNIX_EPOCH, |job| job.created_at()),
        Err(error) => return warn!(%job, "its diff is not kept: {error}"),
    };
    let (state, redactor) = (engine.home.state.clone(), redactor.clone());
    let kept = run_git(move || {
        let scratch = state.workspaces().join(format!("{}.index", known.job));
        // An empty diff would mean that nothing was changed.
        let text = workspace::diff(&known, &scratch, since.into()).unwrap_or_else(|why| {
            warn!(job = %known.job, "its diff cannot be made: {why}");
            format!("# cowhand: no diff could be made: {}\n", why.to_string().replace('\n', " ")).into_bytes()
        });
        write_whole(&state.diff(&known.job), &redactor.redact_bytes(&text))
    });
    if let Err(error) = kept.await {
        warn!(%job, "its diff is not kept: {error}");
    }
    fault::place("diffed");
}

/// Removes or keeps the workspace after an attempt, as the agent's `cleanup` says, if the job has ended.
pub(super) async fn tidy(engine: &Arc<Engine>, job: &JobId) {
    match engine.store.workspace_of(engine.home.node.clone(), job.clone()).await {
        Ok(Some(known)) if !known.is_live() => settle(engine, &known, true).await,
        Ok(_) => {}
        Err(error) => warn!(%job, "its workspace is looked at later: {error}"),
    }
}

/// Removes what no job on this machine needs any more: remains of a crash, workspaces that were kept long enough or
/// exceed the limit, and branches with commits that exist elsewhere by now.
pub(crate) async fn sweep(engine: Arc<Engine>) {
    let known = match engine.store.workspaces(engine.home.node.clone()).await {
        Ok(known) => known,
        Err(error) => return warn!("cannot look at the workspaces: {error}"),
    };
    let now = engine.clock.now();
    let mut kept: HashMap<AgentName, Vec<KnownWorkspace>> = HashMap::new();
    for known in known.into_iter().filter(|known| !known.is_live()) {
        match known.state {
            WorkspaceState::Branch => drop_branch(&engine, known.workspace).await,
            WorkspaceState::Kept { .. } if known.job_status.is_none() => remove(&engine, &known).await,
            WorkspaceState::Kept { until: Some(until) } if until <= now => {
                settle(&engine, &known, false).await;
            }
            WorkspaceState::Kept { .. } => {
                kept.entry(known.workspace.agent.clone()).or_default().push(known);
            }
            WorkspaceState::Making => remove(&engine, &known).await,
            WorkspaceState::Used => settle(&engine, &known, true).await,
        }
    }
    for (agent, kept) in kept {
        limit(&engine, &agent, kept).await;
    }
}

/// Keeps the newest workspaces that fit into `max_kept`, and removes the others.
async fn limit(engine: &Arc<Engine>, agent: &AgentName, kept: Vec<KnownWorkspace>) {
    // The largest limit of the agent and its schedules applies, because their workspaces are counted together.
    let loaded = engine.loaded();
    let agent = loaded.roster.agent(agent);
    let most = agent.into_iter().flat_map(Agent::isolations).map(|rules| rules.max_kept()).max();
    let most = most.unwrap_or_else(|| IsolationRules::default().max_kept());
    let mut sum: u64 = 0;
    for known in kept {
        let path = known.workspace.path.clone();
        let size = run_git(move || files::size(&path)).await;
        sum = sum.saturating_add(size.unwrap_or_else(|why| {
            warn!(job = %known.workspace.job, "its workspace counts for nothing, since it cannot be measured: {why}");
            0
        }));
        if sum > most {
            info!(job = %known.workspace.job, "its workspace goes: `max_kept` is used up");
            remove(engine, &known).await;
        }
    }
}

/// Keeps or removes the workspace of an ended job. With `for_session`, it is kept while its session may continue.
async fn settle(engine: &Arc<Engine>, known: &KnownWorkspace, for_session: bool) {
    let Some(status) = known.job_status else { return remove(engine, known).await };
    let roster = Arc::clone(&engine.loaded().roster);
    // For an agent that was removed from the config, the workspaces of failed jobs are kept.
    let agent = roster.agent(&known.workspace.agent);
    let job = match engine.store.job(known.workspace.job.clone()).await {
        Ok(job) => job,
        Err(error) => return warn!(job = %known.workspace.job, "its workspace is looked at later: {error}"),
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
    if !keep {
        return remove(engine, known).await;
    }
    let state = WorkspaceState::Kept { until };
    if let Err(error) = engine.store.keep_workspace(&known.workspace, state, now).await {
        warn!(job = %known.workspace.job, "its workspace is looked at later: {error}");
    }
}

/// Returns until when the job's session may continue, for which it needs its directory.
fn session_until(job: Job, agent: &Agent) -> Option<Timestamp> {
    if agent.session.policy == SessionPolicy::Fresh {
        return None;
    }
    job.session_id()?;
    JobRecord::from(job).finished_at?.checked_add(agent.session.expires).ok()
}

async fn remove(engine: &Arc<Engine>, known: &KnownWorkspace) {
    let _alone = engine.workspaces.lock().await;
    let workspace = known.workspace.clone();
    // Another job may have taken it meanwhile.
    match engine.store.workspace_of(workspace.node.clone(), workspace.job.clone()).await {
        Ok(Some(now)) if now.workspace.path == workspace.path && !now.is_live() => {}
        _ => return,
    }
    let (store, state) = (&engine.store, &engine.home.state);
    if let Err(why) = removal::remove(store, state, &workspace, engine.clock.now()).await {
        warn!(job = %workspace.job, "its workspace is looked at again later: {why}");
    }
}

/// Removes the workspaces of jobs that were pruned or deleted.
pub(crate) async fn jobs_removed(engine: Arc<Engine>, jobs: Vec<JobId>) {
    match removal::of(&engine.store, engine.home.node.clone(), jobs).await {
        Ok(known) => {
            for known in known.iter().filter(|known| known.job_status.is_none()) {
                remove(&engine, known).await;
            }
        }
        Err(error) => warn!("the workspaces of removed jobs are looked at later: {error}"),
    }
}

async fn drop_branch(engine: &Arc<Engine>, workspace: Workspace) {
    let looked = {
        let workspace = workspace.clone();
        run_git(move || workspace::branch_is_removed(&workspace)).await
    };
    let forgotten = match looked {
        Ok(true) => engine.store.forget_workspace(&workspace).await,
        Ok(false) => return,
        Err(why) => return warn!(job = %workspace.job, "cannot look at its branch: {why}"),
    };
    if let Err(error) = forgotten {
        warn!(job = %workspace.job, "its branch is looked at again later: {error}");
    }
}

fn folder(engine: &Engine) -> Result<PathBuf, WorkspacesError> {
    removal::folder(&engine.home.state)
}

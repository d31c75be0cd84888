//! Removal of jobs with all their files: all jobs that `retention` does not keep, or one job by its id.

use std::path::PathBuf;

use cowhand_core::id::{AgentName, JobId};
use cowhand_core::job::Job;
use cowhand_core::retention::{Excess, Retention, RetentionLimit};
use cowhand_core::roster::Roster;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Fleet, FleetError, known_agent};
use crate::prune::{self, PruneScope};
use crate::state::StateFolder;
use cowhand_run::minder::LockedMinder;
use cowhand_store::{Removal, Store};

/// The jobs to remove.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "PruneAsked")]
pub struct PruneRequest {
    /// Only report which jobs would be removed.
    pub dry_run: bool,
    /// Only jobs of this agent.
    pub agent: Option<AgentName>,
    /// Limits for this call; each key replaces the key of the config.
    pub retention: Retention,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PruneView {
    pub dry_run: bool,
    /// True if no limit is set anywhere, so that everything is kept.
    pub unlimited: bool,
    /// Jobs that were or would be removed, the oldest first.
    pub jobs: Vec<PrunedJob>,
    /// Size of all these jobs.
    pub bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PrunedJob {
    pub id: JobId,
    pub agent: AgentName,
    pub finished_at: Timestamp,
    /// Size in bytes of the job's files and workspace on this machine.
    pub bytes: u64,
    /// The limit that the job exceeded.
    pub why: RetentionLimit,
}

impl Fleet {
    /// Removes the jobs beyond the limits now. A fleet with limits also removes them every hour.
    pub async fn prune(&self, request: PruneRequest) -> Result<PruneView, FleetError> {
        let (roster, now) = (self.roster(), self.clock().now());
        let pruned = prune(self.store(), self.state_folder(), &roster, request, now).await;
        self.nudge();
        pruned
    }

    /// Removes a job regardless of the limits, unless it is in use.
    pub async fn remove_job(&self, id: &JobId) -> Result<Job, FleetError> {
        let removed = remove_job(self.store(), self.state_folder(), id, self.clock().now()).await;
        self.nudge();
        removed
    }
}

/// Removes a job as [`Fleet::remove_job`] does, with or without a daemon.
pub async fn remove_job(
    store: &Store,
    state: &StateFolder,
    id: &JobId,
    now: Timestamp,
) -> Result<Job, FleetError> {
    let job = match store.remove_job(id.clone(), now).await? {
        Removal::Done(job) => job,
        Removal::Gone => return Err(FleetError::NoJob(id.clone())),
        Removal::HooksOpen => return Err(FleetError::HooksOpen(id.clone())),
        Removal::InUse { by } => return Err(FleetError::InUse { job: id.clone(), by }),
    };
    prune::remove_files(state, vec![job.clone()]).await.map_err(prune_error)?;
    Ok(job)
}

/// Removes jobs as [`Fleet::prune`] does, with or without a daemon.
pub async fn prune(
    store: &Store,
    state: &StateFolder,
    roster: &Roster,
    request: PruneRequest,
    now: Timestamp,
) -> Result<PruneView, FleetError> {
    let PruneRequest { dry_run, agent, retention } = request;
    if let Some(agent) = &agent {
        known_agent(store, roster, agent).await?;
    }
    let scope = PruneScope { agent, limits: Some(retention) };
    let unlimited = scope.is_unlimited(roster);
    let mut excess = scope.excess(store, state, roster, now).await.map_err(prune_error)?;
    let jobs = excess.iter().map(|excess| excess.job.id.clone());
    let workspaces = prune::workspaces::sizes(store, state, jobs).await.map_err(prune_error)?;
    if !dry_run {
        excess = prune::prune(store, state, excess, now).await.map_err(prune_error)?;
    }
    let jobs = excess.into_iter().map(PrunedJob::from).map(|job| {
        let workspace = workspaces.get(&job.id).copied().unwrap_or_default();
        PrunedJob { bytes: job.bytes.saturating_add(workspace), ..job }
    });
    let jobs: Vec<_> = jobs.collect();
    let bytes = jobs.iter().map(|job| job.bytes).sum();
    Ok(PruneView { dry_run, unlimited, jobs, bytes })
}

/// Removes the workspaces of removed jobs. Call it only if no daemon runs: a running daemon removes these workspaces
/// itself. `program` is the `cowhand` program, which ends git if this process is killed.
pub async fn remove_workspaces(
    store: &Store,
    state: &StateFolder,
    program: PathBuf,
    jobs: Vec<JobId>,
    now: Timestamp,
) -> Result<(), FleetError> {
    let minder = LockedMinder { program, lock: state.git_lock() };
    prune::workspaces::remove_all(store, state, jobs, &minder, now)
        .await
        .map_err(|why| FleetError::Prune(why.to_string()))
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn prune_error(error: anyhow::Error) -> FleetError {
    FleetError::Prune(format!("{error:#}"))
}

impl From<Excess> for PrunedJob {
    fn from(Excess { job, limit }: Excess) -> Self {
        Self { id: job.id, agent: job.agent, finished_at: job.at, bytes: job.bytes, why: limit }
    }
}

//! Removing jobs: those that `retention` does not keep, or one by name.

use std::fs::File;

use axum::Json;
use axum::extract::{Path, State};
use cowhand_core::id::{AgentName, JobId};
use cowhand_core::job::Job;
use cowhand_core::retention::{Excess, Limit, Retention};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::given::{Given, named};
use super::{Api, Problem, Side};
use crate::prune::{self, Scope};
use crate::store::{JobFilter, Pruned};

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PruneAsked {
    /// Only say what would go.
    pub dry_run: bool,
    /// Only of this agent.
    pub agent: Option<AgentName>,
    /// For this once, key by key over what the config says.
    pub retention: Retention,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PruneView {
    pub dry_run: bool,
    /// No limit is set anywhere, so everything is kept.
    pub unlimited: bool,
    /// What went, or would go, the oldest first.
    pub jobs: Vec<PrunedJob>,
    /// Of all of them.
    pub bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrunedJob {
    pub id: JobId,
    pub agent: AgentName,
    pub finished_at: Timestamp,
    pub bytes: u64,
    /// The limit that it was beyond.
    pub why: Limit,
}

/// Works with no daemon as well: then it takes the daemon's place for as long as it takes.
pub(super) async fn prune(
    State(api): State<Api>,
    Given(asked): Given<PruneAsked>,
) -> Result<Json<PruneView>, Problem> {
    let PruneAsked { dry_run, agent, retention } = asked;
    if let Some(agent) = &agent {
        known(&api, agent).await?;
    }
    let _held = if dry_run { None } else { api.hold()? };
    let (roster, now) = (api.roster(), api.now());
    let scope = Scope { agent, limits: retention };
    let unlimited = scope.is_unlimited(&roster);
    let failed = |error: anyhow::Error| Problem::unavailable(format!("{error:#}"));
    let mut excess = scope.excess(&api.store, &api.state, &roster, now).await.map_err(failed)?;
    if !dry_run {
        let pruned = prune::prune(&api.store, &api.state, excess, now).await;
        api.nudge();
        excess = pruned.map_err(failed)?;
    }
    let jobs: Vec<_> = excess.into_iter().map(PrunedJob::from).collect();
    let bytes = jobs.iter().map(|job| job.bytes).sum();
    Ok(Json(PruneView { dry_run, unlimited, jobs, bytes }))
}

/// Whatever the limits say; only a job that is in use is not removed.
pub(super) async fn delete(State(api): State<Api>, Path(id): Path<String>) -> Result<Json<Job>, Problem> {
    let (daemon, id) = (api.daemon()?, named::<JobId>(&id)?);
    let job = match api.store.remove_job(id.clone(), api.now()).await? {
        Pruned::Done(job) => job,
        Pruned::Gone => return Err(api.no_job(&id).await?),
        Pruned::InUse { by } if by == id => {
            return Err(Problem::conflict(format!("{id} has not ended; cancel it first")));
        }
        Pruned::InUse { by } => {
            return Err(Problem::conflict(format!(
                "{by} began from {id} and has not ended; wait for its end"
            )));
        }
    };
    let removed = prune::remove_files(&api.state, vec![job.clone()]).await;
    daemon.nudge();
    removed.map_err(|error| Problem::unavailable(format!("{error:#}")))?;
    Ok(Json(job))
}

/// An agent that left the fleet is known as long as it has jobs.
async fn known(api: &Api, agent: &AgentName) -> Result<(), Problem> {
    let filter = JobFilter { agent: Some(agent.clone()), ..JobFilter::default() };
    if api.roster().agent(agent).is_none() && api.store.jobs(filter, 1).await?.is_empty() {
        return Err(Problem::no_agent(agent));
    }
    Ok(())
}

impl Api {
    /// A daemon works on its own folder; without one, nobody may start one meanwhile.
    fn hold(&self) -> Result<Option<File>, Problem> {
        match self.side {
            Side::Daemon(_) => return Ok(None),
            Side::Alone { .. } if !self.state.path().exists() => return Ok(None),
            Side::Alone { .. } => {}
        }
        match self.state.lock() {
            Ok(Some(lock)) => Ok(Some(lock)),
            Ok(None) => {
                Err(Problem::conflict("a daemon has just been started, or is just ending; try again"))
            }
            Err(error) => Err(Problem::unavailable(format!("{}: {error}", self.state.path().display()))),
        }
    }

    fn nudge(&self) {
        if let Side::Daemon(fleet) = &self.side {
            fleet.nudge();
        }
    }

    /// Why a job is not there: it was pruned, or there never was one.
    pub(super) async fn no_job(&self, id: &JobId) -> Result<Problem, Problem> {
        Ok(match self.store.pruned_at(id.clone()).await? {
            Some(at) => Problem::not_found(format!("{id} is gone: it was pruned at {at:.0}")),
            None => Problem::no_job(id),
        })
    }
}

impl From<Excess> for PrunedJob {
    fn from(Excess { job, limit }: Excess) -> Self {
        Self { id: job.id, agent: job.agent, finished_at: job.at, bytes: job.bytes, why: limit }
    }
}

//! Removal of the jobs that `retention` does not keep, or of one named job.

use axum::Json;
use axum::extract::{Path, State};
use cowhand_core::id::JobId;
use cowhand_core::job::Job;

use super::extract::JsonBody;
use super::{Api, ApiBackend, ApiProblem, Code};
use cowhand_engine::fleet::{self, FleetError, PruneRequest, PruneView};
use cowhand_engine::state::StateLock;
use cowhand_store::RemovedJob;

/// Prunes jobs. Without a daemon, the state folder is locked while jobs are removed, so that no daemon can start.
pub(super) async fn prune(
    State(api): State<Api>,
    JsonBody(request): JsonBody<PruneRequest>,
) -> Result<Json<PruneView>, ApiProblem> {
    if request.retention.max_jobs_per_agent == Some(0) {
        return Err(ApiProblem::bad_request("`max_jobs_per_agent` has to be at least 1"));
    }
    let program = match &api.backend {
        ApiBackend::Daemon(fleet) => return Ok(Json(fleet.prune(request).await?)),
        ApiBackend::Alone { program, .. } => program.clone(),
    };
    let _lock = if request.dry_run { None } else { api.lock_state_folder()? };
    let pruned = fleet::prune(&api.store, &api.state, &api.roster(), request, api.now()).await?;
    if !pruned.dry_run {
        let jobs = pruned.jobs.iter().map(|job| job.id.clone()).collect();
        fleet::remove_workspaces(&api.store, &api.state, program, jobs, api.now()).await?;
    }
    Ok(Json(pruned))
}

/// Deletes a job. Without a daemon, the state folder is locked meanwhile, so that no daemon can start.
pub(super) async fn delete(State(api): State<Api>, Path(id): Path<String>) -> Result<Json<Job>, ApiProblem> {
    let id = api.job_id(&id).await?;
    let removed = match &api.backend {
        ApiBackend::Daemon(fleet) => fleet.remove_job(&id).await,
        ApiBackend::Alone { program, .. } => {
            let _lock = api.lock_state_folder()?;
            let removed = fleet::remove_job(&api.store, &api.state, &id, api.now()).await;
            if removed.is_ok() {
                let program = program.clone();
                fleet::remove_workspaces(&api.store, &api.state, program, vec![id], api.now()).await?;
            }
            removed
        }
    };
    match removed {
        Err(FleetError::NoJob(id)) => Err(api.no_job(&id).await?),
        removed => Ok(Json(removed?)),
    }
}

impl Api {
    /// Locks the state folder, so that no daemon can start. Returns none if there is no state folder.
    fn lock_state_folder(&self) -> Result<Option<StateLock>, ApiProblem> {
        if !self.state.path().exists() {
            return Ok(None);
        }
        match self.state.lock() {
            Ok(Some(lock)) => Ok(Some(lock)),
            Ok(None) => {
                Err(ApiProblem::conflict("a daemon has just been started, or is just ending; try again"))
            }
            Err(error) => Err(ApiProblem::unavailable(format!("{}: {error}", self.state.path().display()))),
        }
    }

    /// Returns the problem for a job that was removed or never existed.
    pub(super) async fn no_job(&self, id: &JobId) -> Result<ApiProblem, ApiProblem> {
        let removed = self.store.removed_job(id.clone()).await?;
        Ok(removed.map_or_else(|| ApiProblem::no_job(id), |removed| removed_problem(&removed)))
    }
}

/// Part of the message about a removed job. Clients recognise the message by this part.
const REMOVED_JOB: &str = " does not exist any more: it was ";

impl ApiProblem {
    /// Returns true if the requested job was pruned or deleted.
    pub fn is_removed_job(&self) -> bool {
        self.code == Code::NotFound && self.message.contains(REMOVED_JOB)
    }
}

/// Builds the problem for a removed job, with the time of the removal. The problem of a deleted job also names the
/// actor.
pub(super) fn removed_problem(RemovedJob { id, at, limit, by }: &RemovedJob) -> ApiProblem {
    let (verb, by) = if limit.is_some() { ("pruned", None) } else { ("deleted", by.as_ref()) };
    let by = by.map(|by| format!(" by {by}")).unwrap_or_default();
    ApiProblem::not_found(format!("{id}{REMOVED_JOB}{verb} at {at:.0}{by}"))
}

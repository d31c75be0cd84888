//! Removal of jobs: those that `retention` does not keep, or one by name.

use std::fs::File;

use axum::Json;
use axum::extract::{Path, State};
use cowhand_core::id::JobId;
use cowhand_core::job::Job;

use super::extract::Given;
use super::{Api, ApiProblem, Side};
use cowhand_engine::fleet::{self, FleetError, PruneAsked, PruneView};
use cowhand_store::RemovedJob;

/// Prunes jobs. Works without a daemon too: it then holds the lock of the state folder in the meantime.
pub(super) async fn prune(
    State(api): State<Api>,
    Given(asked): Given<PruneAsked>,
) -> Result<Json<PruneView>, ApiProblem> {
    if asked.retention.max_jobs_per_agent == Some(0) {
        return Err(ApiProblem::bad_request("`max_jobs_per_agent` is 1 at least"));
    }
    if let Side::Daemon(fleet) = &api.side {
        return Ok(Json(fleet.prune(asked).await?));
    }
    let _held = if asked.dry_run { None } else { api.hold()? };
    let pruned = fleet::prune(&api.store, &api.state, &api.roster(), asked, api.now()).await?;
    if !pruned.dry_run {
        let jobs = pruned.jobs.iter().map(|job| job.id.clone()).collect();
        fleet::remove_workspaces(&api.store, &api.state, jobs, api.now()).await?;
    }
    Ok(Json(pruned))
}

/// Deletes a job. Works without a daemon too, as pruning does.
pub(super) async fn delete(State(api): State<Api>, Path(id): Path<String>) -> Result<Json<Job>, ApiProblem> {
    let id = api.job_id(&id).await?;
    let removed = match &api.side {
        Side::Daemon(fleet) => fleet.remove_job(&id).await,
        Side::Alone { .. } => {
            let _held = api.hold()?;
            let removed = fleet::remove_job(&api.store, &api.state, &id, api.now()).await;
            if removed.is_ok() {
                fleet::remove_workspaces(&api.store, &api.state, vec![id], api.now()).await?;
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
    /// Locks the state folder, so that no daemon starts in the meantime.
    fn hold(&self) -> Result<Option<File>, ApiProblem> {
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

    /// Returns the problem for a missing job: it was removed, or never existed.
    pub(super) async fn no_job(&self, id: &JobId) -> Result<ApiProblem, ApiProblem> {
        let removed = self.store.removed_job(id.clone()).await?;
        Ok(removed.map_or_else(|| ApiProblem::no_job(id), |removed| gone(&removed)))
    }
}

/// Builds the problem for a removed job, with the time and the actor of the removal.
pub(super) fn gone(RemovedJob { id, at, limit, by }: &RemovedJob) -> ApiProblem {
    let (how, by) = if limit.is_some() { ("pruned", None) } else { ("deleted", by.as_ref()) };
    let by = by.map(|by| format!(" by {by}")).unwrap_or_default();
    ApiProblem::not_found(format!("{id} is gone: it was {how} at {at:.0}{by}"))
}

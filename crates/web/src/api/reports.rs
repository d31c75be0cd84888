//! Reports of running attempts about their work.

use axum::Json;
use axum::extract::{Path, State};
use cowhand_core::report::{MAX_ARTIFACTS, MAX_SUMMARY_LENGTH, Report, ReportRefused, ReportedOutcome};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::extract::{JsonBody, require_attempt, require_fields};
use super::{Api, ApiProblem};
use cowhand_engine::fleet::FleetError;

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(transform = require_fields(["attempt", "outcome", "summary"]))]
#[schemars(rename = "JobReports")]
pub struct ReportRequest {
    /// The number of the attempt that reports.
    #[schemars(range(min = 1))]
    pub attempt: u32,
    pub outcome: Option<ReportedOutcome>,
    /// Description of the work, or the reason why it was not done.
    #[schemars(length(min = 1, max = MAX_SUMMARY_LENGTH))]
    pub summary: String,
    /// URLs, full commit ids, and paths inside the directory of the job.
    #[schemars(length(max = MAX_ARTIFACTS))]
    pub artifacts: Vec<String>,
}

pub(super) async fn make(
    State(api): State<Api>,
    Path(job): Path<String>,
    JsonBody(ReportRequest { attempt, outcome, summary, artifacts }): JsonBody<ReportRequest>,
) -> Result<Json<Report>, ApiProblem> {
    let (fleet, attempt) = (api.daemon()?, require_attempt(attempt)?);
    let outcome = outcome.ok_or(FleetError::ReportRefused(ReportRefused::NoOutcome))?;
    Ok(Json(fleet.report(&api.job_id(&job).await?, attempt, outcome, &summary, &artifacts).await?))
}

//! Reports of running attempts about their work.

use axum::Json;
use axum::extract::{Path, State};
use cowhand_core::report::{LONGEST_SUMMARY, MOST_ARTIFACTS, Report, ReportRefused, ReportedOutcome};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::extract::{Given, of_attempt, requires};
use super::{Api, ApiProblem};
use cowhand_engine::fleet::FleetError;

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(transform = requires(["attempt", "outcome", "summary"]))]
pub struct JobReports {
    /// The number of the attempt that reports.
    #[schemars(range(min = 1))]
    pub attempt: u32,
    pub outcome: Option<ReportedOutcome>,
    /// Description of the work, or the reason why it was not done.
    #[schemars(length(min = 1, max = LONGEST_SUMMARY))]
    pub summary: String,
    /// URLs, full commit ids, and paths inside the directory of the job.
    #[schemars(length(max = MOST_ARTIFACTS))]
    pub artifacts: Vec<String>,
}

pub(super) async fn make(
    State(api): State<Api>,
    Path(job): Path<String>,
    Given(JobReports { attempt, outcome, summary, artifacts }): Given<JobReports>,
) -> Result<Json<Report>, ApiProblem> {
    let (fleet, attempt) = (api.daemon()?, of_attempt(attempt)?);
    let outcome = outcome.ok_or(FleetError::ReportRefused(ReportRefused::NoOutcome))?;
    Ok(Json(fleet.report(&api.job_id(&job).await?, attempt, outcome, &summary, &artifacts).await?))
}

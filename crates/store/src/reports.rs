//! Reports: what agents say that their work came to. Each attempt has one, and the last one counts.

use std::path::PathBuf;

use cowhand_core::event::Fact;
use cowhand_core::id::JobId;
use cowhand_core::job::JobState;
use cowhand_core::report::Report;
use jiff::Timestamp;

use super::database::db::{Tx, args};
use super::database::dialect::statements;
use super::{Store, StoreError, jobs};

statements! {
    REPORT_OF_ATTEMPT = same "select report from attempts where job_id = $1 and number = $2";
    SAVE_REPORT = same "update attempts set report = $3 where job_id = $1 and number = $2";
    DESK_OF_ATTEMPT = same "select node, directory from attempts where job_id = $1 and number = $2";
}

/// What reporting came to.
#[derive(Debug, Clone, PartialEq)]
pub enum ReportMade {
    /// Or it was said before.
    Made(Report),
    /// This attempt of the job does not run, or no longer.
    NotRunning,
}

/// Where an attempt works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptDesk {
    pub node: String,
    pub directory: PathBuf,
}

impl Store {
    /// The attempt's report from now on. Whoever says the same again changes nothing.
    pub async fn report(
        &self,
        job: JobId,
        attempt: u32,
        report: Report,
        now: Timestamp,
    ) -> Result<ReportMade, StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                let job = jobs::lock(tx, &job).await?;
                if !matches!(job.state(), JobState::Running { .. }) || job.attempts() != attempt {
                    return Ok(ReportMade::NotRunning);
                }
                if let Some(known) = of_attempt(tx, job.id(), attempt).await?
                    && known.says_what(&report)
                {
                    return Ok(ReportMade::Made(known));
                }
                tx.execute(SAVE_REPORT, args![job.id().as_str(), attempt, jobs::written(&report)?]).await?;
                jobs::record(tx, &job, Fact::JobReported { attempt, outcome: report.outcome }, now);
                Ok(ReportMade::Made(report))
            })
        })
        .await
    }

    /// Of a job's last attempt.
    pub async fn report_of(&self, job: JobId, attempt: u32) -> Result<Option<Report>, StoreError> {
        self.read(move |tx| Box::pin(async move { of_attempt(tx, &job, attempt).await })).await
    }

    /// None if it has none yet, or there is no such attempt.
    pub async fn desk_of(&self, job: JobId, attempt: u32) -> Result<Option<AttemptDesk>, StoreError> {
        self.read(move |tx| {
            Box::pin(async move {
                let Some(row) = tx.one(DESK_OF_ATTEMPT, args![job.as_str(), attempt]).await? else {
                    return Ok(None);
                };
                let (node, directory): (String, Option<String>) = (row.get("node")?, row.get("directory")?);
                Ok(directory.map(|directory| AttemptDesk { node, directory: directory.into() }))
            })
        })
        .await
    }
}

pub(super) async fn of_attempt(
    tx: &mut Tx<'_>,
    job: &JobId,
    attempt: u32,
) -> Result<Option<Report>, StoreError> {
    let row = tx.one(REPORT_OF_ATTEMPT, args![job.as_str(), attempt]).await?;
    row.map_or(Ok(None), |row| row.json_opt("report"))
}

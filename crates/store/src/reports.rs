//! Reports: results that agents state. Each attempt has at most one report; a later report replaces it.

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
    LOCATION_OF_ATTEMPT = same "select node, directory from attempts where job_id = $1 and number = $2";
}

/// Result of storing a report.
#[derive(Debug, Clone, PartialEq)]
pub enum ReportOutcome {
    /// The stored report. It was stored now, or an equal report was stored before.
    Made(Report),
    /// The attempt does not run, so nothing was stored.
    NotRunning,
}

/// Node and directory of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptLocation {
    pub node: String,
    pub directory: PathBuf,
}

impl Store {
    /// Stores the report of an attempt. An equal report changes nothing.
    pub async fn report(
        &self,
        job: JobId,
        attempt: u32,
        report: Report,
        now: Timestamp,
    ) -> Result<ReportOutcome, StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                let job = jobs::lock(tx, &job).await?;
                if !matches!(job.state(), JobState::Running { .. }) || job.attempts() != attempt {
                    return Ok(ReportOutcome::NotRunning);
                }
                if let Some(stored) = of_attempt(tx, job.id(), attempt).await?
                    && stored.has_same_content(&report)
                {
                    return Ok(ReportOutcome::Made(stored));
                }
                tx.execute(SAVE_REPORT, args![job.id().as_str(), attempt, jobs::to_json(&report)?]).await?;
                jobs::record(tx, &job, Fact::JobReported { attempt, outcome: report.outcome }, now);
                Ok(ReportOutcome::Made(report))
            })
        })
        .await
    }

    /// Returns the report of an attempt; `None` if it has none.
    pub async fn report_of(&self, job: JobId, attempt: u32) -> Result<Option<Report>, StoreError> {
        self.read(move |tx| Box::pin(async move { of_attempt(tx, &job, attempt).await })).await
    }

    /// Returns the node and directory of an attempt; `None` if the attempt has no directory yet or does not exist.
    pub async fn location_of_attempt(
        &self,
        job: JobId,
        attempt: u32,
    ) -> Result<Option<AttemptLocation>, StoreError> {
        self.read(move |tx| {
            Box::pin(async move {
                let Some(row) = tx.one(LOCATION_OF_ATTEMPT, args![job.as_str(), attempt]).await? else {
                    return Ok(None);
                };
                let (node, directory): (String, Option<String>) = (row.get("node")?, row.get("directory")?);
                Ok(directory.map(|directory| AttemptLocation { node, directory: directory.into() }))
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

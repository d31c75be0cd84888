//! Reads the attempts of a job.

use cowhand_core::attempt::Superseded;
use cowhand_core::id::JobId;
use cowhand_core::job::{Job, JobUsage, Outcome};
use cowhand_core::moment::Moment;
use cowhand_core::report::Report;
use jiff::Timestamp;

use super::database::db::{Row, args};
use super::database::dialect::statements;
use super::{Store, StoreError, jobs};

statements! {
    ATTEMPTS_OF_JOB = same "select number, node, started_at, agent_began_at, ended_at, outcome, usage, report, superseded from attempts where job_id = $1 order by number";
    ATTEMPT_BEGAN = same "select started_at, started_boot from attempts where job_id = $1 and number = $2";
    DUE_OF_JOB = same "select min(due_at) as due_at from firings where job_id = $1";
}

/// A job with its attempts and the due time of its firing.
#[derive(Debug, Clone, PartialEq)]
pub struct JobHistory {
    pub job: Job,
    /// Due time of its firing; `None` for a job without a firing and for all but the first job of a firing.
    pub due: Option<Timestamp>,
    /// Attempts in their order, without attempts that never began.
    pub attempts: Vec<PastAttempt>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct PastAttempt {
    pub number: u32,
    pub node: String,
    pub started_at: Timestamp,
    /// Start of the attempt's agent; `None` while the attempt runs, and if its node does not know the start.
    pub agent_began_at: Option<Timestamp>,
    /// End of the attempt; `None` while it runs.
    pub ended_at: Option<Timestamp>,
    pub outcome: Option<Outcome>,
    /// Usage. While the attempt runs, this is the usage so far.
    pub usage: Option<JobUsage>,
    /// Report of its agent.
    pub report: Option<Report>,
    /// What its node found out about it after another node had settled it as lost.
    pub superseded: Option<Superseded>,
}

impl Store {
    /// Returns the time at which an attempt was claimed, on both clocks.
    pub async fn attempt_began(&self, id: JobId, number: u32) -> Result<Option<Moment>, StoreError> {
        self.read(move |tx| {
            Box::pin(async move {
                let row = tx.one(ATTEMPT_BEGAN, args![id.as_str(), number]).await?;
                Ok(row.map(|row| row.moment_opt("started_at", "started_boot")).transpose()?.flatten())
            })
        })
        .await
    }

    /// Returns the history of a job; `None` if the job does not exist.
    pub async fn history(&self, id: JobId) -> Result<Option<JobHistory>, StoreError> {
        self.read(move |tx| {
            Box::pin(async move {
                let Some(job) = jobs::get(tx, &id).await? else { return Ok(None) };
                let rows = tx.all(ATTEMPTS_OF_JOB, args![id.as_str()]).await?;
                let attempts = rows.iter().map(read).collect::<Result<_, _>>()?;
                let due = tx.one(DUE_OF_JOB, args![id.as_str()]).await?;
                let due = due.map(|row| row.time_opt("due_at")).transpose()?.flatten();
                Ok(Some(JobHistory { job, due, attempts }))
            })
        })
        .await
    }
}

fn read(row: &Row) -> Result<PastAttempt, StoreError> {
    Ok(PastAttempt {
        number: row.count("number")?,
        node: row.get("node")?,
        started_at: row.time("started_at")?,
        agent_began_at: row.time_opt("agent_began_at")?,
        ended_at: row.time_opt("ended_at")?,
        outcome: row.json_opt("outcome")?,
        usage: row.json_opt("usage")?,
        report: row.json_opt("report")?,
        superseded: row.json_opt("superseded")?,
    })
}

//! Denials: tool uses that permission rules denied. In a job, all denials of one tool by one rule share one row and one
//! event.

use cowhand_core::ask::Denial;
use cowhand_core::event::Fact;
use cowhand_core::id::JobId;
use cowhand_core::job::JobState;
use jiff::Timestamp;

use super::database::db::{Row, args};
use super::database::dialect::statements;
use super::{Store, StoreError, jobs};

statements! {
    COUNT_DENIAL = same "update denials set times = times + 1, last_at = $4 where job_id = $1 and tool = $2 and rule = $3";
    DENIALS_SO_FAR = same "select count(*) as made from denials where job_id = $1";
    ADD_DENIAL = same "insert into denials (job_id, tool, rule, times, first_at, last_at) values ($1, $2, $3, 1, $4, $4)";
    DENIALS_OF_JOB = same "select tool, rule, times, first_at, last_at from denials where job_id = $1 \
        order by first_at, tool, rule";
}

/// Maximum number of rows of a job; further denials are not recorded. There is a limit because agents choose the names
/// of tools.
const MAX_DENIALS_PER_JOB: u32 = 100;

impl Store {
    /// Records that a rule denied a tool to the running attempt of a job. Does nothing if this attempt does not run.
    pub async fn denied(
        &self,
        job: JobId,
        attempt: u32,
        tool: String,
        rule: String,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                let job = jobs::lock(tx, &job).await?;
                if !matches!(job.state(), JobState::Running { .. }) || job.attempts() != attempt {
                    return Ok(());
                }
                let row = || args![job.id().as_str(), tool.as_str(), rule.as_str(), now];
                if tx.execute(COUNT_DENIAL, row()).await? > 0 {
                    return Ok(());
                }
                let made = tx.one(DENIALS_SO_FAR, args![job.id().as_str()]).await?;
                if made.map_or(Ok(0), |row| row.count("made"))? < MAX_DENIALS_PER_JOB {
                    tx.execute(ADD_DENIAL, row()).await?;
                    jobs::record(tx, &job, Fact::AskDenied { tool, rule }, now);
                }
                Ok(())
            })
        })
        .await
    }

    /// Returns the denials of a job in the order of their first occurrence.
    pub async fn denials_of(&self, job: JobId) -> Result<Vec<Denial>, StoreError> {
        let rows =
            self.read(move |tx| Box::pin(async move { tx.all(DENIALS_OF_JOB, args![job.as_str()]).await }));
        rows.await?.iter().map(read).collect()
    }
}

fn read(row: &Row) -> Result<Denial, StoreError> {
    Ok(Denial {
        tool: row.get("tool")?,
        rule: row.get("rule")?,
        times: row.count("times")?,
        first_at: row.time("first_at")?,
        last_at: row.time("last_at")?,
    })
}

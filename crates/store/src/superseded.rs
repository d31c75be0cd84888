//! Superseded attempts: a node lost the lease of a job, and the attempt was settled as lost. When the node has ended its
//! agent, it stores what it knows about the attempt. The job does not change, except for the spending of a job that has
//! not ended.

use cowhand_core::attempt::Superseded;
use cowhand_core::event::Fact;
use cowhand_core::id::JobId;
use cowhand_core::job::{JobState, JobUsage};
use jiff::Timestamp;

use super::database::db::args;
use super::database::dialect::statements;
use super::{Store, StoreError, budgets, jobs, usage};

statements! {
    TAKEN_OVER_ATTEMPT = same "select usage, superseded from attempts where job_id = $1 and number = $2 and node = $3 \
        and taken_over = 1";
    SAVE_SUPERSEDED = same "update attempts set superseded = $3 where job_id = $1 and number = $2";
}

impl Store {
    /// Returns whether an attempt of the node was settled because its lease had expired, and nothing is stored about its
    /// end yet.
    pub async fn is_superseded(&self, id: JobId, number: u32, node: String) -> Result<bool, StoreError> {
        self.read(move |tx| {
            Box::pin(async move {
                let row = tx.one(TAKEN_OVER_ATTEMPT, args![id.as_str(), number, node.as_str()]).await?;
                row.map_or(Ok(false), |row| {
                    row.json_opt::<Superseded>("superseded").map(|stored| stored.is_none())
                })
            })
        })
        .await
    }

    /// Stores what the node found out about an attempt that was settled because its lease had expired. Adds spending
    /// that was not known before. Does nothing for other attempts, and when it is called again.
    pub async fn record_superseded(
        &self,
        id: JobId,
        number: u32,
        node: String,
        superseded: Superseded,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                let mut job = jobs::lock(tx, &id).await?;
                let row = tx.one(TAKEN_OVER_ATTEMPT, args![id.as_str(), number, node.as_str()]).await?;
                let Some(row) = row else { return Ok(()) };
                if row.json_opt::<Superseded>("superseded")?.is_some() {
                    return Ok(());
                }
                let known: Option<JobUsage> = row.json_opt("usage")?;
                let unknown = superseded.usage.clone().map(|used| match &known {
                    Some(known) => used.since(known),
                    None => used,
                });
                if let (Some(used), Some(unknown)) = (&superseded.usage, &unknown) {
                    // An assumed cost is counted already, and stays.
                    let assumed_usd = known.as_ref().and_then(|known| known.assumed_usd);
                    let all = JobUsage { assumed_usd, ..used.clone() };
                    budgets::save_usage(tx, &id, number, &all).await?;
                    usage::add_late(tx, &job, unknown, now).await?;
                    if !matches!(job.state(), JobState::Ended { .. }) {
                        job.spend(unknown)?;
                        jobs::save(tx, &job).await?;
                    }
                }
                tx.execute(SAVE_SUPERSEDED, args![id.as_str(), number, jobs::to_json(&superseded)?]).await?;
                let exit_reason = superseded.outcome.as_ref().map(cowhand_core::job::Outcome::exit_reason);
                let cost_usd = unknown.and_then(|usage| usage.total_cost_usd).filter(|cost| *cost > 0.0);
                let fact = Fact::JobSuperseded { attempt: number, node, exit_reason, cost_usd };
                jobs::record(tx, &job, fact, now);
                Ok(())
            })
        })
        .await
    }
}

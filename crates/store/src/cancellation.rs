//! Cancelling jobs: pending jobs end at once, running jobs get a request.

use cowhand_core::event::Fact;
use cowhand_core::id::JobId;
use cowhand_core::job::{CancelReason, Job, JobError, JobState, Outcome, Termination};
use jiff::Timestamp;

use super::database::db::{Tx, args};
use super::database::dialect::statements;
use super::{Store, StoreError, claims, job_messages, jobs};

statements! {
    LAST_OUTCOME = same "select number, outcome from attempts where job_id = $1 and outcome is not null \
        order by number desc limit 1";
    ASK_FOR_CANCEL = same "update jobs set cancel_asked_at = $2 where id = $1 and cancel_asked_at is null";
}

/// Result of cancelling a job.
#[derive(Debug, Clone, PartialEq)]
pub enum CancelOutcome {
    /// The job was pending and has ended.
    Done(Job),
    /// The job runs; its node was asked to end it.
    Requested(Job),
    AlreadyEnded(Job),
}

impl Store {
    /// Cancels a job. A pending job ends at once. A running job is marked, and its node ends the processes and settles
    /// the job.
    pub async fn cancel(&self, id: JobId, now: Timestamp) -> Result<CancelOutcome, StoreError> {
        self.cancel_because(id, None, now).await
    }

    /// Records that a running job is about to be stopped, and the reason. The caller stops the job. Does nothing if the
    /// job does not run.
    pub async fn record_cancelling(
        &self,
        id: JobId,
        reason: CancelReason,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                let job = jobs::lock(tx, &id).await?;
                if matches!(job.state(), JobState::Running { .. }) {
                    jobs::record(tx, &job, Fact::JobCancelling { reason: Some(reason) }, now);
                }
                Ok(())
            })
        })
        .await
    }

    /// Cancels a job as [`Self::cancel`] does. `reason` is set if cowhand itself cancels the job.
    pub async fn cancel_because(
        &self,
        id: JobId,
        reason: Option<CancelReason>,
        now: Timestamp,
    ) -> Result<CancelOutcome, StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                let mut job = jobs::lock(tx, &id).await?;
                match job.state() {
                    JobState::Ended { .. } => return Ok(CancelOutcome::AlreadyEnded(job)),
                    JobState::Running { .. } => {
                        if tx.execute(ASK_FOR_CANCEL, args![id.as_str(), now]).await? == 1 {
                            jobs::record(tx, &job, Fact::JobCancelling { reason }, now);
                        }
                        return Ok(CancelOutcome::Requested(job));
                    }
                    JobState::Pending { .. } => {}
                }
                if reason.is_some() {
                    jobs::record(tx, &job, Fact::JobCancelling { reason }, now);
                }
                let how = if let Some((attempt, error)) = last_failure(tx, &id).await? {
                    job.cancel_between(attempt, &error, now)?;
                    Termination::BetweenAttempts
                } else {
                    job.cancel(Termination::NotStarted, now)?;
                    Termination::NotStarted
                };
                jobs::save(tx, &job).await?;
                let (outcome, ended) = (Outcome::Cancelled { how }, tx.moment(now));
                claims::apply_job_end(tx, &job, &outcome, None, None, (ended, now)).await?;
                jobs::record(tx, &job, Fact::of_settled(&job, &outcome), now);
                job_messages::drop_waiting(tx, &job, now).await?;
                Ok(CancelOutcome::Done(job))
            })
        })
        .await
    }
}

/// Returns the number and the error of the job's last ended attempt; `None` if no attempt has ended, or if that attempt
/// did not fail.
async fn last_failure(tx: &mut Tx<'_>, id: &JobId) -> Result<Option<(u32, JobError)>, StoreError> {
    let Some(row) = tx.one(LAST_OUTCOME, args![id.as_str()]).await? else { return Ok(None) };
    Ok(match row.json_opt("outcome")? {
        Some(Outcome::Failed { error, .. }) => Some((row.count("number")?, error)),
        _ => None,
    })
}

//! Reading, listing and cancelling jobs.

use cowhand_core::id::JobId;
use cowhand_core::job::Job;

use super::{Fleet, FleetError};
use crate::context::StopRequest;
use cowhand_store::{CancelOutcome, JobFilter};

impl Fleet {
    /// Returns the current state of a job; a job that has ended does not change.
    pub async fn job(&self, job: &JobId) -> Result<Job, FleetError> {
        self.store().job(job.clone()).await?.ok_or_else(|| FleetError::NoJob(job.clone()))
    }

    /// Returns at most `limit` jobs, the newest first; `after` in the filter continues with older ones.
    pub async fn jobs(&self, filter: JobFilter, limit: u32) -> Result<Vec<Job>, FleetError> {
        Ok(self.store().jobs(filter, limit).await?)
    }

    /// Cancels a job. A waiting job ends at once; the whole process tree of a running one is asked to end.
    pub async fn cancel(&self, job: JobId) -> Result<CancelOutcome, FleetError> {
        let answer = self.engine.store.cancel(job.clone(), self.engine.clock.now()).await?;
        // Also sent directly, because a draining fleet makes no more plans.
        self.engine.request_stop(&job, StopRequest::Cancel);
        self.nudge();
        self.engine.outbox.notify_one();
        self.engine.hooks.notify_one();
        Ok(answer)
    }
}

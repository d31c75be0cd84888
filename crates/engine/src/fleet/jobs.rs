//! Jobs, looked at and ended.

use cowhand_core::id::JobId;
use cowhand_core::job::Job;

use super::{Fleet, FleetError};
use crate::context::StopRequest;
use cowhand_store::{CancelOutcome, JobFilter};

impl Fleet {
    /// As it is now; a job that has ended stays so.
    pub async fn job(&self, job: &JobId) -> Result<Job, FleetError> {
        self.store().job(job.clone()).await?.ok_or_else(|| FleetError::NoJob(job.clone()))
    }

    /// The newest first, at most `limit`; `after` in the filter goes on with older ones.
    pub async fn jobs(&self, filter: JobFilter, limit: u32) -> Result<Vec<Job>, FleetError> {
        Ok(self.store().jobs(filter, limit).await?)
    }

    /// A waiting job is cancelled at once; of a running one the whole process tree is asked to end.
    pub async fn cancel(&self, job: JobId) -> Result<CancelOutcome, FleetError> {
        let answer = self.engine.store.cancel(job.clone(), self.engine.clock.now()).await?;
        // Told directly as well: a fleet that drains makes no more plans.
        self.engine.wish(&job, StopRequest::Cancel);
        self.nudge();
        self.engine.owed.notify_one();
        self.engine.hooks.notify_one();
        Ok(answer)
    }
}

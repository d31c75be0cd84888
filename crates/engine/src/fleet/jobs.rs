//! Reading, listing and cancelling jobs, and firings without a job.

use cowhand_core::id::{AgentName, JobId, ScheduleId, ScheduleName};
use cowhand_core::job::Job;
use cowhand_core::plan::Preparing;
use cowhand_core::trigger::FiringKey;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::known::is_of;
use super::{Fleet, FleetError};
use crate::context::StopRequest;
use crate::unfinished::UnfinishedWorkspace;
use cowhand_store::{CancelOutcome, JobFilter, Store};

/// Accepted firing without a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AcceptedFiring {
    pub agent: AgentName,
    pub schedule: ScheduleName,
    pub key: FiringKey,
}

impl Fleet {
    /// Returns the current state of a job; a job that has ended does not change.
    pub async fn job(&self, job: &JobId) -> Result<Job, FleetError> {
        self.store().job(job.clone()).await?.ok_or_else(|| FleetError::NoJob(job.clone()))
    }

    /// Returns why the workspace of an ended job is still kept, if its diff could not be made yet, or its commits could
    /// not be stored yet.
    pub fn unfinished_workspace(&self, job: &JobId) -> Option<String> {
        self.engine.unfinished.reason(job)
    }

    /// Returns the workspaces of ended jobs that are still kept, because their diff could not be made yet, or their
    /// commits could not be stored yet.
    pub async fn unfinished_workspaces(&self) -> Result<Vec<UnfinishedWorkspace>, FleetError> {
        let reasons = self.engine.unfinished.all();
        if reasons.is_empty() {
            return Ok(Vec::new());
        }
        let stored = self.store().workspaces(self.engine.home.node.clone()).await?;
        let unfinished = reasons.into_iter().filter_map(|(job, reason)| {
            let stored = stored.iter().find(|stored| stored.workspace.job == job)?;
            Some(UnfinishedWorkspace { job, agent: stored.workspace.agent.clone(), reason })
        });
        Ok(unfinished.collect())
    }

    /// Returns at most `limit` jobs, the newest first; `after` in the filter continues with older jobs.
    pub async fn jobs(&self, filter: JobFilter, limit: u32) -> Result<Vec<Job>, FleetError> {
        Ok(self.store().jobs(filter, limit).await?)
    }

    /// Cancels a job. A pending job ends at once; the whole process tree of a running job is asked to end.
    pub async fn cancel(&self, job: JobId) -> Result<CancelOutcome, FleetError> {
        let answer = self.engine.store.cancel(job.clone(), self.engine.clock.now()).await?;
        // The request is also sent directly, because a draining fleet makes no more plans.
        self.engine.request_stop(&job, StopRequest::Cancel);
        self.nudge();
        self.engine.outbox.notify_one();
        self.engine.hooks.notify_one();
        Ok(answer)
    }

    /// Cancels the accepted firings without a job, of one agent or schedule or of all, and returns the cancelled
    /// firings. Their schedules may have been removed from the config.
    pub async fn cancel_firings(
        &self,
        agent: Option<&AgentName>,
        schedule: Option<&ScheduleName>,
    ) -> Result<Vec<AcceptedFiring>, FleetError> {
        let mut cancelled = Vec::new();
        for (id, firing) in matching_firings(self.store(), agent, schedule).await? {
            if self.store().cancel_firing(id, firing.key.clone(), self.engine.clock.now()).await? {
                cancelled.push(firing);
            }
        }
        self.nudge();
        Ok(cancelled)
    }
}

/// Returns the accepted firings without a job, of one agent or schedule or of all.
pub async fn accepted_firings(
    store: &Store,
    agent: Option<&AgentName>,
    schedule: Option<&ScheduleName>,
) -> Result<Vec<AcceptedFiring>, FleetError> {
    let matching = matching_firings(store, agent, schedule).await?;
    Ok(matching.into_iter().map(|(_, firing)| firing).collect())
}

async fn matching_firings(
    store: &Store,
    agent: Option<&AgentName>,
    schedule: Option<&ScheduleName>,
) -> Result<Vec<(ScheduleId, AcceptedFiring)>, FleetError> {
    let snapshot = store.snapshot().await?;
    let matching = |firing: &Preparing| {
        let record = snapshot.schedules.get(&firing.schedule)?;
        let (agent_name, name, key) = (record.agent.clone(), record.name.clone(), firing.key.clone());
        let accepted = AcceptedFiring { agent: agent_name, schedule: name, key };
        is_of(record, agent, schedule).then_some((firing.schedule, accepted))
    };
    Ok(snapshot.preparing.iter().filter_map(matching).collect())
}

//! Removes jobs that `retention` does not keep.
//!
//! Rows are removed first, in one transaction with their event. Then the files are removed: at once, and again when the
//! views reach that event. The second removal has three effects. No file is left, even if the process is killed after
//! the transaction. A node on another machine also removes its files of the job. No removed file is written again.

pub mod files;
pub(crate) mod workspaces;

use anyhow::Context;
use cowhand_core::id::AgentName;
use cowhand_core::job::Job;
use cowhand_core::retention::{Excess, Finished, Retention, excess};
use cowhand_core::roster::Roster;
use jiff::Timestamp;

use crate::state::StateFolder;
use cowhand_store::Store;
use cowhand_system::fault;

/// Maximum number of jobs that are removed in one transaction.
const MAX_JOBS_PER_TRANSACTION: usize = 100;

/// The jobs to consider, and the limits.
#[derive(Debug, Clone, Default)]
pub struct PruneScope {
    /// Agent of the jobs; `None` means all agents, including agents that were removed from the config.
    pub agent: Option<AgentName>,
    /// Limits for this call, with precedence over the config; `None` means the limits of the config.
    pub limits: Option<Retention>,
}

impl PruneScope {
    fn policy(&self, roster: &Roster, agent: &AgentName) -> Retention {
        let configured = roster.retention(agent);
        self.limits.map_or(configured, |limits| limits.over(configured))
    }

    /// Returns whether nothing can be removed because no limit is set.
    pub(crate) fn is_unlimited(&self, roster: &Roster) -> bool {
        match &self.agent {
            Some(agent) => self.policy(roster, agent).is_unlimited(),
            None => self.limits.is_none_or(|limits| limits.is_unlimited()) && roster.keeps_everything(),
        }
    }

    /// Returns the jobs that exceed the limits now.
    pub async fn excess(
        &self,
        store: &Store,
        state: &StateFolder,
        roster: &Roster,
        now: Timestamp,
    ) -> anyhow::Result<Vec<Excess>> {
        if self.is_unlimited(roster) {
            return Ok(Vec::new());
        }
        let ended = store.ended_jobs(self.agent.clone()).await?;
        let folder = state.clone();
        let bytes = tokio::task::spawn_blocking(move || files::measure(&folder)).await?;
        let bytes = bytes.with_context(|| format!("cannot look into {}", state.path().display()))?;
        let finished = ended.into_iter().map(|job| Finished {
            bytes: bytes.get(&job.id).copied().unwrap_or_default(),
            id: job.id,
            agent: job.agent,
            at: job.at,
        });
        Ok(excess(finished.collect(), |agent| self.policy(roster, agent), now))
    }
}

/// Removes these jobs and returns the removed jobs. A job that is in use by now stays, for example because a new job
/// was made from it.
pub async fn prune(
    store: &Store,
    state: &StateFolder,
    excess: Vec<Excess>,
    now: Timestamp,
) -> anyhow::Result<Vec<Excess>> {
    let mut pruned = Vec::new();
    let mut result = Ok(());
    for part in excess.chunks(MAX_JOBS_PER_TRANSACTION) {
        let limits = part.iter().map(|excess| (excess.job.id.clone(), excess.limit)).collect();
        let removed = store.prune(limits, now).await?;
        fault::point("pruned");
        let is_removed = |excess: &&Excess| removed.iter().any(|job| *job.id() == excess.job.id);
        pruned.extend(part.iter().filter(is_removed).cloned());
        // A job with files that cannot be removed does not prevent the removal of other jobs.
        result = result.and(remove_files(state, removed).await);
    }
    result.map(|()| pruned)
}

/// Removes the files of jobs whose rows are already removed. An error with one job does not prevent the removal of the
/// files of other jobs.
pub async fn remove_files(state: &StateFolder, jobs: Vec<Job>) -> anyhow::Result<()> {
    let state = state.clone();
    let removal = tokio::task::spawn_blocking(move || {
        let mut result = Ok(());
        for job in &jobs {
            result = result.and(files::remove(&state, job.id(), job.attempts()));
        }
        result
    });
    removal.await?.context("the jobs are pruned, but not all of their files could be removed")
}

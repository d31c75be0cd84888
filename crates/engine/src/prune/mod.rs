//! Removing jobs that are beyond what `retention` keeps.
//!
//! Rows go first, in one transaction with the event that tells of it, and files after that: at once, and once more
//! when the views come to that event. So whoever is killed in between leaves nothing behind, whoever has files of
//! the job on another machine removes them too, and nothing comes back.

pub mod files;

use anyhow::Context;
use cowhand_core::id::AgentName;
use cowhand_core::job::Job;
use cowhand_core::retention::{Excess, Finished, Retention, excess};
use cowhand_core::roster::Roster;
use jiff::Timestamp;

use crate::state::StateFolder;
use cowhand_store::Store;
use cowhand_system::fault;

/// Rows that go in one transaction.
const TOGETHER: usize = 100;

/// Whose jobs, and by which limits.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    /// Unset means everybody's, also of agents that have left the fleet.
    pub agent: Option<AgentName>,
    /// For this once, over what the config says.
    pub limits: Retention,
}

impl Scope {
    fn policy(&self, roster: &Roster, agent: &AgentName) -> Retention {
        self.limits.over(roster.retention(agent))
    }

    /// Whether nothing can go because no limit is set.
    pub(crate) fn is_unlimited(&self, roster: &Roster) -> bool {
        match &self.agent {
            Some(agent) => self.policy(roster, agent).is_unlimited(),
            None => self.limits.is_unlimited() && roster.keeps_everything(),
        }
    }

    /// What is to go now.
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

/// Removes these jobs, and answers with those that went: one that a new job came from meanwhile stays.
pub async fn prune(
    store: &Store,
    state: &StateFolder,
    excess: Vec<Excess>,
    now: Timestamp,
) -> anyhow::Result<Vec<Excess>> {
    let mut pruned = Vec::new();
    let mut left = Ok(());
    for part in excess.chunks(TOGETHER) {
        let asked = part.iter().map(|excess| (excess.job.id.clone(), excess.limit)).collect();
        let gone = store.prune(asked, now).await?;
        fault::place("pruned");
        let went = |excess: &&Excess| gone.iter().any(|job| *job.id() == excess.job.id);
        pruned.extend(part.iter().filter(went).cloned());
        // One that cannot be removed keeps no other from going.
        left = left.and(remove_files(state, gone).await);
    }
    left.map(|()| pruned)
}

/// The files of jobs whose rows are gone; all that can be, whatever is wrong with one of them.
pub async fn remove_files(state: &StateFolder, gone: Vec<Job>) -> anyhow::Result<()> {
    let state = state.clone();
    let removed = tokio::task::spawn_blocking(move || {
        let mut all = Ok(());
        for job in &gone {
            all = all.and(files::remove(&state, job.id(), job.attempts()));
        }
        all
    });
    removed.await?.context("the jobs are pruned, but not all of their files could be removed")
}

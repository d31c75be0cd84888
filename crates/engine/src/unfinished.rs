//! The unfinished workspaces, each with the reason why the daemon could not finish it yet: for example, its diff could
//! not be made, or its commits could not be stored. The daemon tries again until it succeeds. The list is not stored:
//! after a restart, the first sweep tries all workspaces of ended jobs.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cowhand_core::id::{AgentName, JobId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A workspace that is kept although its job has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnfinishedWorkspace {
    pub job: JobId,
    pub agent: AgentName,
    /// Why it is kept.
    pub reason: String,
}

impl UnfinishedWorkspace {
    /// Returns a sentence about these workspaces, with their number and what a person can do; `None` if there are none.
    pub fn sentence(all: &[&Self]) -> Option<String> {
        let (Self { job, reason, .. }, others) = all.split_first()?;
        Some(if others.is_empty() {
            format!(
                "the workspace of {job} is kept, and the daemon tries again to finish it; to end that, copy what you need \
                 from its folder and delete it: {reason}"
            )
        } else {
            format!(
                "{} workspaces of ended jobs are kept, and the daemon tries again to finish them; to end that, copy what you \
                 need from their folders and delete them. That of {job}: {reason}",
                all.len()
            )
        })
    }
}

/// The reason for each job whose workspace is unfinished.
#[derive(Debug, Default)]
pub struct Unfinished(Mutex<HashMap<JobId, String>>);

impl Unfinished {
    /// Records why the workspace of a job is kept. Returns whether the reason is new.
    pub(crate) fn keep(&self, job: &JobId, reason: String) -> bool {
        let mut reasons = self.reasons();
        if reasons.get(job) == Some(&reason) {
            return false;
        }
        reasons.insert(job.clone(), reason);
        true
    }

    pub(crate) fn finish(&self, job: &JobId) {
        self.reasons().remove(job);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.reasons().is_empty()
    }

    pub(crate) fn jobs(&self) -> Vec<JobId> {
        self.reasons().keys().cloned().collect()
    }

    /// Returns why the workspace of a job is kept, if it is unfinished.
    pub(crate) fn reason(&self, job: &JobId) -> Option<String> {
        self.reasons().get(job).cloned()
    }

    /// Returns all reasons, in the order of the jobs.
    pub(crate) fn all(&self) -> Vec<(JobId, String)> {
        let mut all: Vec<_> =
            self.reasons().iter().map(|(job, reason)| (job.clone(), reason.clone())).collect();
        all.sort();
        all
    }

    fn reasons(&self) -> MutexGuard<'_, HashMap<JobId, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! Workspaces of ended jobs that the daemon could not finish yet, each with the reason, for example because its diff
//! could not be made or its commits could not be stored. The daemon tries again until it succeeds. The list is not
//! stored: after a restart, the daemon tries a workspace again as soon as a sweep keeps or removes it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cowhand_core::id::JobId;

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

    fn reasons(&self) -> MutexGuard<'_, HashMap<JobId, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! The rows of a restored store. If the store has no row for the view of a job or the folder of an attempt, the view or
//! folder was written after the backup. It is removed, so that it is not mistaken for a file of a later job or attempt
//! with the same name.

use std::fs;
use std::path::Path;

use cowhand_core::id::JobId;

use crate::attempt::outcomes;
use crate::prune::files;
use crate::state::StateFolder;
use crate::view::job_of_record;
use cowhand_run::attempt::Attempt;
use cowhand_store::KnownRows;
use tracing::warn;

#[derive(Debug)]
pub(super) struct RestoredRows(pub(super) KnownRows);

impl RestoredRows {
    /// Removes the views of jobs, and the folders of attempts and hooks, that the store does not have. Running attempts
    /// are left to the next start, which ends them. A folder that cannot be removed now is removed when an attempt with
    /// the same name begins.
    pub(super) fn remove_unknown(&self, state: &StateFolder) {
        for path in paths(&state.jobs()) {
            if job_of_record(&path).is_some_and(|job| !self.0.jobs.contains(job.as_str())) {
                fs::remove_file(path).ok();
            }
        }
        let attempts = paths(&state.attempts()).into_iter().filter_map(|path| Attempt::at(&path).ok());
        for attempt in attempts.filter(|attempt| !self.knows(attempt)) {
            attempt.clear().ok();
        }
        let knows = |job: &JobId, number: u32| {
            self.0.attempts.contains(&(job.as_str().to_owned(), i64::from(number)))
        };
        if let Err(error) = outcomes::retain(state, knows) {
            warn!("cannot remove outcomes of attempts that the store does not know: {error}");
        }
    }

    fn knows(&self, attempt: &Attempt) -> bool {
        let key = |(job, number): (JobId, u32)| (job.as_str().to_owned(), i64::from(number));
        attempt.job_and_number().is_some_and(|own| self.0.attempts.contains(&key(own)))
            || attempt.hook().is_some_and(|own| self.0.hooks.contains(&key(own)))
    }
}

pub(super) fn paths(folder: &Path) -> Vec<std::path::PathBuf> {
    files::entries(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

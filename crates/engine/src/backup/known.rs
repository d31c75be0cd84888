//! What a restored store knows. Records of what it does not know are of another history: they are removed, so that they
//! say nothing about jobs and attempts that get the same names again.

use std::fs;
use std::path::Path;

use cowhand_core::id::JobId;

use crate::prune::files;
use crate::state::StateFolder;
use cowhand_run::attempt::Attempt;
use cowhand_store::KnownRows;

#[derive(Debug)]
pub(super) struct Known(pub(super) KnownRows);

impl Known {
    /// Removes views of other jobs and the folders of other attempts. What still runs is left to the next start, which ends
    /// it; what cannot be removed is cleared when something of the same name begins.
    pub(super) fn forget_others(&self, state: &StateFolder) {
        for path in paths(&state.jobs()) {
            if is_view(&path).is_some_and(|job| !self.0.jobs.contains(job.as_str())) {
                fs::remove_file(path).ok();
            }
        }
        let attempts = paths(&state.attempts()).into_iter().filter_map(|path| Attempt::at(&path).ok());
        for attempt in attempts.filter(|attempt| !self.knows(attempt)) {
            attempt.clear().ok();
        }
    }

    fn knows(&self, attempt: &Attempt) -> bool {
        let named = |(job, number): (JobId, u32)| (job.as_str().to_owned(), i64::from(number));
        attempt.of_job().is_some_and(|own| self.0.attempts.contains(&named(own)))
            || attempt.hook().is_some_and(|own| self.0.hooks.contains(&named(own)))
    }
}

pub(super) fn paths(folder: &Path) -> Vec<std::path::PathBuf> {
    files::entries(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// The job whose record for people this is.
fn is_view(path: &Path) -> Option<JobId> {
    path.file_name()?.to_str()?.strip_suffix(".yaml")?.parse().ok()
}

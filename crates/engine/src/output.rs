//! The output of jobs as it stands in the state folder.

use cowhand_core::id::JobId;
use cowhand_core::job::JobStatus;
use tokio::sync::watch;

use crate::error::FleetError;
use crate::state::StateFolder;
use cowhand_run::jsonl::{self, Jsonl};
use cowhand_store::Store;

/// The lines of a job as they come, for those who pass them on.
#[derive(Debug)]
pub struct Listening {
    store: Store,
    job: JobId,
    jsonl: Jsonl,
    /// None if what there is is all.
    growth: Option<watch::Receiver<()>>,
    /// The newest event when it was last looked at: the job's end is one.
    seen: i64,
}

impl Listening {
    /// `growth` tells of new lines until the job has ended; without it, only the lines that exist are read.
    pub fn new(
        store: &Store,
        state: &StateFolder,
        job: &JobId,
        after: u64,
        growth: Option<watch::Receiver<()>>,
    ) -> Self {
        Self {
            seen: store.committed(),
            store: store.clone(),
            job: job.clone(),
            jsonl: Jsonl::after(state.output(job), after),
            growth,
        }
    }

    pub const fn job(&self) -> &JobId {
        &self.job
    }

    /// The next lines; nothing while there are none, none when there will be none.
    pub async fn more(&mut self) -> Result<Option<Vec<u8>>, FleetError> {
        // First whether it has ended, then what it wrote: so nothing that was written before is missed.
        self.seen = self.store.committed();
        let mut lives = false;
        if let Some(growth) = &mut self.growth {
            growth.mark_unchanged();
            let job = self.store.job(self.job.clone()).await?;
            let job = job.ok_or_else(|| FleetError::NoJob(self.job.clone()))?;
            lives = matches!(job.status(), JobStatus::Pending | JobStatus::Running);
        }
        let part = self.jsonl.more().map_err(|source| unreadable(&self.job, source))?;
        Ok((lives || !part.is_empty()).then_some(part))
    }

    /// Returns when there may be something that the last look did not see, also if it came during that look.
    pub async fn grown(&mut self) {
        let Some(growth) = &mut self.growth else { return };
        tokio::select! {
            _ = growth.changed() => {}
            () = self.store.changed(self.seen) => {}
        }
    }
}

/// Returns the result of a job in its own words: see [`crate::fleet::Fleet::result`].
pub async fn result(state: &StateFolder, job: JobId) -> Result<Option<String>, FleetError> {
    let path = state.output(&job);
    // A large file takes a while.
    let read = tokio::task::spawn_blocking(move || jsonl::final_output(&path)).await;
    read.map_err(std::io::Error::other).flatten().map_err(|source| unreadable(&job, source))
}

fn unreadable(job: &JobId, source: std::io::Error) -> FleetError {
    FleetError::Output { job: job.clone(), source }
}

//! `cowhand retry` and `cowhand fork`: a new job from an earlier one.

use std::path::Path;

use clap::Args;
use cowhand_core::id::{JobId, ScheduleName};
use cowhand_core::job::JobRecord;

use super::{Failure, job, place};
use crate::fleet::Changes;

#[derive(Debug, Args)]
pub(super) struct Retry {
    id: JobId,
    /// Wait until the job has ended; exit code 1 if it failed
    #[arg(long)]
    wait: bool,
    /// Print the new job as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct Fork {
    #[command(flatten)]
    retry: Retry,
    /// What to do, instead of what the earlier job was told
    #[arg(short, long)]
    prompt: Option<String>,
    /// As a job of this schedule of the same agent, instead of the earlier job's
    #[arg(long)]
    schedule: Option<ScheduleName>,
}

impl Retry {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        self.make(config, "retry", &Changes::default())
    }

    fn make(self, config: Option<&Path>, verb: &str, changes: &Changes) -> Result<(), Failure> {
        place::ask(config, async |client| {
            let job: JobRecord = client.post(&format!("jobs/{}/{verb}", self.id), changes).await?;
            job::tell(client, job, self.wait, self.json).await
        })
    }
}

impl Fork {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        let changes = Changes { prompt: self.prompt, schedule: self.schedule };
        self.retry.make(config, "fork", &changes)
    }
}

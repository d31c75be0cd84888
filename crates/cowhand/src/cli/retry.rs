//! `cowhand retry` and `cowhand fork`: a new job from an earlier one.

use std::path::Path;

use clap::Args;
use cowhand_core::id::JobId;
use cowhand_core::job::JobRecord;

use super::{Failure, job, place};

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
}

impl Retry {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        self.make(config, "retry", None)
    }

    fn make(self, config: Option<&Path>, verb: &str, prompt: Option<&str>) -> Result<(), Failure> {
        let asked = serde_json::json!({ "prompt": prompt });
        place::ask(config, async |client| {
            let job: JobRecord = client.post(&format!("jobs/{}/{verb}", self.id), &asked).await?;
            job::tell(client, job, self.wait, self.json).await
        })
    }
}

impl Fork {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        self.retry.make(config, "fork", self.prompt.as_deref())
    }
}

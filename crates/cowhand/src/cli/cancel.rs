//! `cowhand cancel`: a job ends, with every process of it.

use std::path::Path;

use clap::Args;
use cowhand_core::id::JobId;
use cowhand_core::job::JobRecord;

use super::{Failure, job, place};

#[derive(Debug, Args)]
pub(super) struct Cancel {
    id: JobId,
    /// Print the job as JSON
    #[arg(long)]
    json: bool,
}

impl Cancel {
    /// Answers when the processes are gone, to say how they went.
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        place::ask(config, async |client| {
            client.post::<JobRecord>(&format!("jobs/{}/cancel", self.id), &()).await?;
            let goes_on =
                format!("{id} is being ended; `cowhand job {id}` tells how far it is", id = self.id);
            job::print(&job::ended(client, &self.id, &goes_on).await?, self.json);
            Ok(())
        })
    }
}

//! `cowhand mcp`: the fleet as an MCP server on standard input and output.

use clap::Args;

use super::{Exit, Failure, place};
use crate::mcp::{self, JobVoice};

#[derive(Debug, Args)]
pub(super) struct Mcp {
    /// For the agent of a job, with that job's rights
    #[arg(long, required = true)]
    job: bool,
}

impl Mcp {
    pub(super) fn run(self) -> Result<(), Failure> {
        let cannot = |why: String| Failure::new(Exit::CannotRunHere, why);
        let voice = JobVoice::from_environment().map_err(cannot)?;
        place::wait(async { mcp::serve(voice).await.map_err(|error| cannot(format!("{error:#}"))) })
    }
}

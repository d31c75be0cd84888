//! `cowhand trigger`: creates a job now.

use std::path::Path;

use clap::Args;
use cowhand_core::id::{AgentName, ScheduleName};
use cowhand_core::job::JobRecord;

use super::prompt::PromptArgs;
use super::{Failure, complete, job, location};
use cowhand_engine::fleet;

#[derive(Debug, Args)]
pub(super) struct TriggerArgs {
    /// Agent of the job
    #[arg(add = complete::agents())]
    agent: AgentName,
    /// Fire this schedule of the agent
    #[arg(add = complete::schedules_of_agent())]
    schedule: Option<ScheduleName>,
    #[command(flatten)]
    prompt: PromptArgs,
    /// Idempotency key: the same key for the same schedule gives the same job
    #[arg(long, value_name = "KEY", requires = "schedule")]
    idempotency_key: Option<String>,
    /// Wait until the job has ended; exit code 1 if it failed
    #[arg(long)]
    wait: bool,
    /// Print the job as JSON
    #[arg(long)]
    json: bool,
}

impl TriggerArgs {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        let Self { agent, schedule, prompt, idempotency_key, wait, json } = self;
        let asked = fleet::Trigger { schedule, prompt: prompt.read()?, idempotency_key, by_page: false };
        location::ask(config, async |client| {
            let job: JobRecord = client.post(&format!("agents/{agent}/trigger"), &asked).await?;
            job::print_created(client, job, wait, json).await
        })
    }
}

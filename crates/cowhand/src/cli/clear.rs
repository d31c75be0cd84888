//! `cowhand clear`: clears the sessions of an agent.

use std::path::Path;

use clap::Args;
use cowhand_core::id::AgentName;

use super::{Failure, complete, location, print};
use cowhand_web::api::AgentView;

#[derive(Debug, Args)]
pub(super) struct ClearArgs {
    /// Agent whose sessions are cleared
    #[arg(add = complete::agents())]
    agent: AgentName,
    /// Print the agent as JSON
    #[arg(long)]
    json: bool,
}

impl ClearArgs {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        location::ask(config, async |client| {
            let view: AgentView = client.post(&format!("agents/{}/clear", self.agent), &()).await?;
            print::done(&format!("The sessions of {} are cleared.", self.agent), &view, self.json);
            Ok(())
        })
    }
}

//! `cowhand clear`: an agent is to begin anew.

use std::path::Path;

use clap::Args;
use cowhand_core::id::AgentName;

use super::{Failure, complete, place, print};
use crate::api::AgentView;

#[derive(Debug, Args)]
pub(super) struct Clear {
    /// The agent that is to begin anew
    #[arg(add = complete::agents())]
    agent: AgentName,
}

impl Clear {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        place::ask(config, async |client| {
            client.post::<AgentView>(&format!("agents/{}/clear", self.agent), &()).await?;
            print::line(format!("{} is to begin anew.", self.agent));
            Ok(())
        })
    }
}

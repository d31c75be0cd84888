//! `cowhand reload`: the daemon reads its config again.

use std::path::Path;

use clap::Args;

use super::spinner::Spinner;
use super::{Failure, place, print};
use cowhand_engine::fleet::Reloaded;

#[derive(Debug, Args)]
pub(super) struct Reload {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Reload {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        let reloaded = place::ask(config, async |client| {
            let read =
                Spinner::new("reading the config").during(client.post::<Reloaded>("reload", &())).await;
            Ok(read?)
        })?;
        if self.json {
            print::json(&reloaded);
        } else {
            let (agents, schedules) = (reloaded.agents, reloaded.schedules);
            print::line(format!("reloaded; agents: {agents}, schedules: {schedules}"));
        }
        Ok(())
    }
}

//! `cowhand reload`: makes the daemon read its config again.

use std::path::Path;

use clap::Args;

use super::location::FleetLocation;
use super::spinner::Spinner;
use super::{Exit, Failure, print};
use cowhand_engine::fleet::Reloaded;

#[derive(Debug, Args)]
pub(super) struct ReloadArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl ReloadArgs {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        let (location, of_search) = FleetLocation::search(config)?;
        if let Some(other) = location.runs_other_file() {
            return Err(Failure::new(Exit::Refused, other));
        }
        location.note(of_search);
        let reloaded = location.ask(async |client| {
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

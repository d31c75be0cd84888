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
        let (location, search_note) = FleetLocation::search(config)?;
        if let Some(note) = location.runs_other_file() {
            return Err(Failure::new(Exit::Refused, note));
        }
        location.note(search_note);
        let reloaded = location.ask(async |client| {
            let result =
                Spinner::new("reading the config").during(client.post::<Reloaded>("reload", &())).await;
            Ok(result?)
        })?;
        for note in reloaded.notes.iter().filter(|_| !self.json) {
            print::note(note);
        }
        let (agents, schedules) = (reloaded.agents, reloaded.schedules);
        let sentence = format!("reloaded; agents: {agents}, schedules: {schedules}");
        print::done(&sentence, &reloaded, self.json);
        Ok(())
    }
}

//! `cowhand resume`: opens the session of a job in its program, for a person.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use clap::Args;
use cowhand_core::id::JobName;

use super::location::{FleetLocation, cannot};
use super::{Exit, Failure, complete, print};
use cowhand_web::api::SessionView;

#[derive(Debug, Args)]
pub(super) struct ResumeArgs {
    /// Ended job, as `cowhand jobs` lists it
    #[arg(value_name = "JOB", add = complete::ended_jobs())]
    id: JobName,
    /// Print the session as JSON, without opening it
    #[arg(long)]
    json: bool,
    /// Open the session outside its sandbox even if it contains text of a stranger
    #[arg(long)]
    unconfined: bool,
}

impl ResumeArgs {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        let location = FleetLocation::find(config)?;
        let view: SessionView =
            location.ask(async |client| Ok(client.get(&format!("jobs/{}/session", self.id)).await?))?;
        if self.json {
            print::json(&view);
            return Ok(());
        }
        let this_node =
            location.state.node().map_err(|error| cannot("cannot read the name of this node", &error))?;
        let refused = |message: String| Failure::new(Exit::Refused, message);
        if view.node != this_node {
            return Err(refused(format!("the session of {} is on another machine, {}", view.job, view.node)));
        }
        if let Some(why) = view.confined.filter(|_| !self.unconfined) {
            return Err(refused(format!(
                "{} ran in the strict sandbox ({why}), and this terminal has no sandbox; `--unconfined` opens the session anyway",
                view.job
            )));
        }
        if !view.directory.is_dir() {
            let directory = view.directory.display();
            return Err(refused(format!(
                "the session of {} belongs to {directory}, which does not exist any more",
                view.job
            )));
        }
        let Some((program, arguments)) = view.command.split_first() else {
            return Err(refused(format!(
                "the session of {} cannot be opened: its runtime is not known",
                view.job
            )));
        };
        // From here on the program has the terminal; `exec` returns only with an error.
        let error = Command::new(program).args(arguments).current_dir(&view.directory).exec();
        Err(cannot(&format!("cannot run {program}"), &error))
    }
}

//! `cowhand resume`: opens the session of a job in its program, for a person.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use clap::Args;
use cowhand_core::id::JobName;
use cowhand_core::runtime::Runtime;

use super::location::{FleetLocation, cannot};
use super::{Exit, Failure, complete, print};
use cowhand_engine::config;
use cowhand_run::runtime::description::private_home_variables;
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
        if let Some(why) = view.confined.as_ref().filter(|_| !self.unconfined) {
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
        let loaded = config::load(&location.config).loaded;
        let agent = loaded.roster.agent(&view.agent);
        let variables = agent.map(|agent| agent.program_of(view.fallback).env.clone()).unwrap_or_default();
        let missing = view.variables.iter().filter(|name| !variables.contains_key(*name));
        for name in missing {
            print::note(format!(
                "{name} of the agent {} is not set, because the config has changed or has errors",
                view.agent
            ));
        }
        // A confined job stored its session in a home of its own.
        let private_home = view.confined.map(|_| location.state.home_for_strangers(&view.agent));
        let homes = private_home.zip(Runtime::named(&view.runtime));
        let homes = homes.map(|(home, runtime)| private_home_variables(runtime, &home)).unwrap_or_default();
        // From here on the program has the terminal; `exec` returns only with an error.
        let error = Command::new(program)
            .args(arguments)
            .envs(variables)
            .envs(homes)
            .current_dir(&view.directory)
            .exec();
        Err(cannot(&format!("cannot run {program}"), &error))
    }
}

//! `cowhand restart`: replaces the daemon by a new one in the background. The agents continue to run.

use std::path::Path;

use clap::Args;

use super::listen::ListenArgs;
use super::location::{FleetLocation, wait};
use super::log::LogFormat;
use super::node_args::NodeArgs;
use super::start_options::StartOptions;
use super::stop::stop;
use super::{Failure, background, number, print, restart_check};
use cowhand_engine::config;
use cowhand_web::api::DaemonStopRequest;

#[derive(Debug, Args)]
pub(super) struct RestartArgs {
    /// Time for jobs to finish after a signal, before they are cancelled [default: that of the last start]
    #[arg(long, value_name = "SECONDS", value_parser = number::seconds)]
    stop_timeout: Option<u64>,
    #[command(flatten)]
    listen: ListenArgs,
    /// Format of the log [default: that of the last start]
    #[arg(long, value_enum)]
    log_format: Option<LogFormat>,
    #[command(flatten)]
    node: NodeArgs,
    /// Print the new daemon as JSON
    #[arg(long)]
    json: bool,
}

impl RestartArgs {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        let (location, search_note) = FleetLocation::search(config)?;
        search_note.into_iter().for_each(print::note);
        let Self { stop_timeout, listen, log_format, node, json } = self;
        let node = node.with_environment()?;
        location.refuse_second_daemon(&config::load(&location.config).files)?;
        let new_options = StartOptions { listen, stop_timeout, log_format, node, config: None };
        let options = StartOptions::read(&location.state)?.overridden_by(new_options);
        wait(restart_check::check(&location, &options.listen))?;
        // Other commands wait for the new daemon. They cannot wait if the lock is not available.
        let _restart_lock = location.state.lock_for_restart();
        let stopped = stop(&location, DaemonStopRequest { keep_agents: true, timeout_seconds: None })?;
        background::start(&location, &options, false, json).map_err(|failure| match stopped {
            Some(_) if failure.was_interrupted() => failure,
            Some(_) if location.state.is_locked() => failure.with_line(OTHER_DAEMON_RUNS),
            Some(_) => failure.with_line(NO_DAEMON_RUNS),
            None => failure,
        })
    }
}

/// Text that is added to the failure if another `start` or `restart` was faster.
const OTHER_DAEMON_RUNS: &str = "The old daemon has stopped, and another daemon was started meanwhile.";
const NO_DAEMON_RUNS: &str = "The old daemon has stopped, so no daemon runs now. Its agents continue to run. Correct the error, then start a daemon with \
                         `cowhand start -d`.";

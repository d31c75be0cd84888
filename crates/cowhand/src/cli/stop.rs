//! `cowhand stop`: the daemon ends, and its agents with it unless they are to be kept.

use std::path::Path;
use std::time::Duration;

use clap::Args;

use super::place::{Place, wait};
use super::{Exit, Failure, background, print};
use crate::api::{Client, DaemonView, Problem, StopAsked};

#[derive(Debug, Args)]
pub(super) struct Stop {
    /// Leave running agents alone; the next start takes them up again
    #[arg(long)]
    keep_agents: bool,
    /// How long running jobs may finish before they are cancelled
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    timeout: u64,
}

/// Beyond the timeout: agents that are cancelled have a grace period of their own.
const AFTERWARDS: Duration = Duration::from_mins(1);

impl Stop {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        let place = Place::find(config)?;
        let asked = StopAsked { keep_agents: self.keep_agents, timeout_seconds: Some(self.timeout) };
        if !stop(&place, asked)? {
            return Err(Failure::from(Problem::no_daemon()));
        }
        print::line("stopped");
        Ok(())
    }
}

/// Waits until it is gone. False if none ran.
pub(super) fn stop(place: &Place, asked: StopAsked) -> Result<bool, Failure> {
    let told = wait(async {
        let Some(client) = Client::of_daemon(&place.state).await? else { return Ok(false) };
        client.post::<DaemonView>("stop", &asked).await?;
        Ok(true)
    })?;
    let timeout = Duration::from_secs(asked.timeout_seconds.unwrap_or_default().min(24 * 3600));
    if told && !background::gone(place, timeout + AFTERWARDS)? {
        let message = "the daemon is still stopping; `cowhand stop` once more cancels what runs at once";
        return Err(Failure::new(Exit::Refused, message));
    }
    Ok(told)
}

//! `cowhand stop`: the daemon ends, and its agents with it unless they are to be kept.

use std::convert::Infallible;
use std::path::Path;
use std::time::Duration;

use clap::Args;

use super::place::{Place, wait};
use super::spinner::Spinner;
use super::{Exit, Failure, background, interrupt, print};
use crate::api::{Client, DaemonView, Problem, Status, StopAsked};

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
const LOOK: Duration = Duration::from_millis(500);

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
    wait(async {
        let Some(client) = Client::of_daemon(&place.state).await? else { return Ok(false) };
        client.post::<DaemonView>("stop", &asked).await?;
        let timeout = Duration::from_secs(asked.timeout_seconds.unwrap_or_default().min(24 * 3600));
        let spinner = Spinner::new("stopping");
        let gone = async {
            tokio::select! {
                gone = background::gone(place, timeout + AFTERWARDS) => gone,
                never = tell_what_runs(&client, &spinner), if spinner.is_shown() => match never {},
            }
        };
        if interrupt::unless(spinner.during(gone), Some(STILL_STOPPING)).await? {
            return Ok(true);
        }
        Err(Failure::new(Exit::Refused, STILL_STOPPING))
    })
}

const STILL_STOPPING: &str =
    "the daemon is still stopping; `cowhand stop` once more cancels what runs at once";

/// As long as the daemon answers.
async fn tell_what_runs(client: &Client, spinner: &Spinner) -> Infallible {
    loop {
        if let Ok(status) = client.get::<Status>("status").await {
            let running: usize = status.agents.iter().map(|agent| agent.running).sum();
            spinner.say(match running {
                0 => "stopping".to_owned(),
                1 => "stopping; 1 job still runs".to_owned(),
                many => format!("stopping; {many} jobs still run"),
            });
        }
        tokio::time::sleep(LOOK).await;
    }
}

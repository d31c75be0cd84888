//! `cowhand demo`: runs a real fleet in a temporary folder, with scripted agents that need no account.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use anyhow::Context as _;
use clap::Args;
use cowhand_core::event::{Event, Fact};
use cowhand_core::interval::Interval;
use cowhand_core::job::{Job, JobRecord, JobStatus};
use cowhand_core::schedule::SkipReason;
use cowhand_core::work::WorkOutcome;
use jiff::tz::TimeZone;
use tokio::signal::unix::{SignalKind, signal};

use super::threads::daemon_runtime;
use super::{Exit, Failure};
use cowhand_engine::fleet::{Fleet, Options, Stop};
use cowhand_engine::state::StateFolder;
use cowhand_store::{JobFilter, Store};

#[derive(Debug, Args)]
pub(super) struct DemoArgs {
    /// Stop after this time, for example 30s [default: until Ctrl-C]
    #[arg(long = "for", value_name = "TIME")]
    time: Option<Interval>,
    /// Keep the folder, for inspection
    #[arg(long)]
    keep: bool,
}

const DEMO_FILES: [(&str, &str); 8] = [
    ("cowhand.yaml", include_str!("cowhand.yaml")),
    ("triager.sh", include_str!("triager.sh")),
    ("builder.sh", include_str!("builder.sh")),
    ("courier.sh", include_str!("courier.sh")),
    ("fixer.sh", include_str!("fixer.sh")),
    ("tasks/fix-login.md", include_str!("tasks/fix-login.md")),
    ("tasks/flaky-test.md", include_str!("tasks/flaky-test.md")),
    ("tasks/old-links.md", include_str!("tasks/old-links.md")),
];

impl DemoArgs {
    pub(super) fn run(self) -> Result<(), Failure> {
        let runtime = daemon_runtime().map_err(|error| cannot(&error.into()))?;
        runtime.block_on(self.show()).map_err(|error| cannot(&error))
    }

    async fn show(self) -> anyhow::Result<()> {
        let mut folder = tempfile::Builder::new().prefix("cowhand-demo-").tempdir()?;
        folder.disable_cleanup(self.keep);
        std::fs::create_dir(folder.path().join("tasks"))?;
        for (name, text) in DEMO_FILES {
            std::fs::write(folder.path().join(name), text)?;
        }
        let options = Options::of(folder.path().join("cowhand.yaml"), std::env::current_exe()?);
        let fleet = Fleet::start(options).await?;
        let result = match introduce(folder.path(), self.time) {
            Ok(()) => self.print_events_until_end(&fleet).await,
            Err(error) => Err(error),
        };
        let jobs = fleet.store().jobs(JobFilter::default(), 10_000).await;
        fleet.stop(Stop::Cancel).await?;
        let result = match result {
            Ok(()) => sum_up(&jobs?, folder.path(), self.keep),
            failed => failed,
        };
        // A closed pipe is not an error, because the reader closed it.
        result.or_else(|error| if is_closed_pipe(&error) { Ok(()) } else { Err(error) })
    }

    /// Prints events until the time is over, a signal arrives or the fleet ends.
    async fn print_events_until_end(&self, fleet: &Fleet) -> anyhow::Result<()> {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let time = self.time.and_then(|time| Duration::try_from(time.duration()).ok());
        let over = async {
            match time {
                Some(time) => tokio::time::sleep(time).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(over);
        let mut events = fleet.subscribe_after(0);
        loop {
            tokio::select! {
                () = &mut over => return Ok(()),
                _ = interrupt.recv() => return Ok(()),
                _ = terminate.recv() => return Ok(()),
                event = events.next() => match event? {
                    Some(event) => print_event(&event, fleet.store()).await?,
                    None => return Ok(()),
                },
            }
        }
    }
}

fn cannot(error: &anyhow::Error) -> Failure {
    Failure::new(Exit::CannotRunHere, format!("{error:#}"))
}

fn print_line(text: impl Display) -> anyhow::Result<()> {
    let mut out = anstream::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).context("cannot write to standard output")
}

/// Returns true if the reader of the output has closed the pipe.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let source = error.downcast_ref::<io::Error>();
    source.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

fn introduce(folder: &Path, time: Option<Interval>) -> anyhow::Result<()> {
    let end = time.map_or_else(|| "Ctrl-C ends it".to_owned(), |time| format!("it ends after {time}"));
    print_line(format!("A fleet of five agents runs in {}; {end}.", folder.display()))?;
    print_line("They are shell scripts, so this needs no account and no network. While it runs, try")?;
    print_line(format!("  cat {}/.cowhand/state.yaml", folder.display()))?;
    print_line(format!("  cat {}/tasks/fix-login.md", folder.display()))?;
    print_line(format!("  echo 'Water the plants.' > {}/tasks/plants.md", folder.display()))?;
    print_line(format!("  tail -f {}/.cowhand/jobs/*.jsonl\n", folder.display()))
}

/// Prints one line for an event that is of interest to a person.
async fn print_event(event: &Event, store: &Store) -> anyhow::Result<()> {
    let (color, what) = match &event.fact {
        Fact::JobStarted { attempt: 1, .. } => (AnsiColor::Blue, "started".to_owned()),
        Fact::JobStarted { attempt, .. } => (AnsiColor::Blue, format!("started, attempt {attempt}")),
        Fact::JobCompleted { .. } => (AnsiColor::Green, format!("done: {}", summary(event, store).await?)),
        Fact::JobFailed { message, .. } => (AnsiColor::Red, format!("failed: {message}")),
        Fact::JobRetrying { message, .. } => (AnsiColor::Yellow, format!("will be retried: {message}")),
        Fact::WorkClaimed { item } => (AnsiColor::Cyan, format!("{item}: available → claimed")),
        Fact::WorkReported { item, outcome: WorkOutcome::Success } => {
            (AnsiColor::Cyan, format!("{item}: claimed → done"))
        }
        Fact::WorkReleased { item, .. } => (AnsiColor::Cyan, format!("{item}: claimed → available")),
        Fact::ScheduleSkipped { reason: SkipReason::NoWork, .. } => {
            (AnsiColor::Yellow, "no work items left, so no agent is started".to_owned())
        }
        Fact::ScheduleSkipped { reason, .. } | Fact::ScheduleWaiting { reason, .. } => {
            (AnsiColor::Yellow, format!("not now: {}", reason.as_str().replace('_', " ")))
        }
        _ => return Ok(()),
    };
    let style = Style::new().fg_color(Some(color.into()));
    let time = event.at.to_zoned(TimeZone::system()).strftime("%H:%M:%S").to_string();
    let name = event.subject();
    print_line(format!("{time}  {name:<20} {style}{what}{style:#}"))
}

async fn summary(event: &Event, store: &Store) -> anyhow::Result<String> {
    let Some(id) = event.job.clone() else { return Ok(String::new()) };
    Ok(store.job(id).await?.and_then(|job| JobRecord::from(job).summary).unwrap_or_default())
}

fn sum_up(jobs: &[Job], folder: &Path, keep: bool) -> anyhow::Result<()> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for job in jobs {
        let word = if job.status() == JobStatus::Completed { "completed" } else { "not completed" };
        *counts.entry(word).or_default() += 1;
    }
    let counts: Vec<String> = counts.iter().map(|(word, count)| format!("{count} {word}")).collect();
    print_line(format!("\n{} jobs: {}.", jobs.len(), counts.join(", ")))?;
    if keep {
        print_line(format!("The state of the demo is in {}.", folder.join(StateFolder::NAME).display()))?;
    }
    print_line(
        "For a fleet of your own, write a cowhand.yaml and run `cowhand start`; docs/config.md shows how.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_states_the_number_of_agents() {
        let (_, config) = DEMO_FILES[0];
        let agents = config.lines().filter(|line| line.starts_with("  - name: ")).count();
        assert_eq!(agents, 5);
        assert!(config.contains("description: Five agents "), "{config}");
    }
}

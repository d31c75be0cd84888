//! `cowhand demo`: what cowhand does, shown on a machine with no account, key or service.
//!
//! The engine is not built yet, so there is no fleet to run: the demo shows what works so far and says so.

use clap::Args;
use cowhand_core::cron::Cron;
use jiff::{Timestamp, tz::TimeZone};

use super::{Exit, Failure};

#[derive(Debug, Args)]
pub(super) struct Demo {}

/// Schedules as a fleet file would name them.
const SCHEDULES: [(&str, &str, &str); 3] = [
    ("triage/new-issues", "*/15 8-18 * * MON-FRI", "Europe/Berlin"),
    ("reporter/standup", "0 9 * * MON-FRI", "America/New_York"),
    ("janitor/month-end", "30 2 L * *", "Australia/Lord_Howe"),
];

impl Demo {
    #[expect(clippy::unused_self, reason = "every verb is run in the same way")]
    pub(super) fn run(self) -> Result<(), Failure> {
        anstream::println!("cowhand is being built from the ground up: it cannot run agents yet.");
        anstream::println!("It can already say when schedules fire. The next three times of each:");
        let now = Timestamp::now();
        for (name, expression, zone) in SCHEDULES {
            anstream::println!("\n{name}  {expression}  {zone}");
            for at in
                next_three(expression, zone, now).map_err(|error| Failure::new(Exit::CannotRunHere, error))?
            {
                anstream::println!("  {at}");
            }
        }
        anstream::println!(
            "\nTry your own: cowhand schedule next --cron '0 9 * * MON-FRI' --timezone Europe/Berlin"
        );
        Ok(())
    }
}

fn next_three(expression: &str, zone: &str, now: Timestamp) -> Result<Vec<String>, String> {
    let cron: Cron = expression.parse().map_err(|error| format!("{expression}: {error}"))?;
    let zone = TimeZone::get(zone).map_err(|error| error.to_string())?;
    let firings = std::iter::successors(cron.next_after(now, &zone), |at| cron.next_after(*at, &zone));
    Ok(firings
        .take(3)
        .map(|at| at.to_zoned(zone.clone()).strftime("%a %Y-%m-%d %H:%M %Z").to_string())
        .collect())
}

//! `cowhand schedule`: when things fire.

use clap::{Args, Subcommand};
use cowhand_core::cron::Cron;
use cowhand_core::policy::Zone;
use jiff::{SpanRound, Timestamp, Unit};

use super::{Exit, Failure};

#[derive(Debug, Subcommand)]
pub(super) enum Schedule {
    /// Show the next firings of a cron expression, before it is written down
    Next(Next),
}

#[derive(Debug, Args)]
pub(super) struct Next {
    /// Five fields, six with leading seconds, or a shorthand such as @daily
    #[arg(long, value_name = "EXPR")]
    cron: String,
    /// IANA zone of the expression [default: the system's]
    #[arg(long, value_name = "ZONE")]
    timezone: Option<String>,
    /// Firings after this RFC 3339 time [default: now]
    #[arg(long, value_name = "TIME")]
    from: Option<Timestamp>,
    /// How many
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    count: u32,
    /// Print a JSON array of RFC 3339 UTC times
    #[arg(long)]
    json: bool,
}

impl Schedule {
    pub(super) fn run(self) -> Result<(), Failure> {
        match self {
            Self::Next(next) => next.run(),
        }
    }
}

impl Next {
    fn run(self) -> Result<(), Failure> {
        let cron: Cron = self.cron.parse().map_err(|error| usage("--cron", error))?;
        let zone = match &self.timezone {
            Some(name) => {
                name.parse::<Zone>().map_err(|error| usage("--timezone", error))?.time_zone().clone()
            }
            None => jiff::tz::TimeZone::system(),
        };
        let from = self.from.unwrap_or_else(Timestamp::now);
        let firings = std::iter::successors(cron.next_after(from, &zone), |at| cron.next_after(*at, &zone));
        let firings: Vec<Timestamp> = firings.take(self.count as usize).collect();
        if self.json {
            anstream::println!("{}", serde_json::json!(firings));
            return Ok(());
        }
        for at in firings {
            let local = at.to_zoned(zone.clone());
            anstream::println!("{}  {}", local.strftime("%a %Y-%m-%d %H:%M:%S %Z"), in_words(from, at));
        }
        Ok(())
    }
}

fn usage(option: &str, error: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::Usage, format!("{option}: {error}"))
}

/// `in 3d 4h`: two units are enough to plan by.
fn in_words(from: Timestamp, at: Timestamp) -> String {
    let smallest = match at.duration_since(from).as_secs() {
        86_400.. => Unit::Hour,
        3_600..86_400 => Unit::Minute,
        _ => Unit::Second,
    };
    let round = SpanRound::new().largest(Unit::Day).smallest(smallest).days_are_24_hours();
    match from.until(at).and_then(|span| span.round(round)) {
        Ok(span) => format!("in {span:#}"),
        Err(_) => String::new(),
    }
}

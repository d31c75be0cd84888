//! `cowhand schedule next`: when things will fire.

use std::path::Path;

use clap::Args;
use cowhand_core::cron::Cron;
use cowhand_core::plan::coming::{coming as coming_of, times};
use cowhand_core::policy::Zone;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use super::FullName;
use crate::api::Page;
use crate::cli::place::Place;
use crate::cli::{Exit, Failure, ago, print};
use crate::config;
use crate::fleet::{ScheduleStatus, ScheduleView};

#[derive(Debug, Args)]
pub(in crate::cli) struct Next {
    /// Only of this schedule [default: the whole fleet]
    #[arg(value_name = "AGENT/SCHEDULE", conflicts_with = "cron")]
    name: Option<FullName>,
    /// Of this expression: five fields, six with leading seconds, or a shorthand such as @daily
    #[arg(long, value_name = "EXPR")]
    cron: Option<String>,
    /// IANA zone of the expression [default: the system's]
    #[arg(long, value_name = "ZONE", requires = "cron")]
    timezone: Option<String>,
    /// Firings after this RFC 3339 time [default: now]
    #[arg(long, value_name = "TIME")]
    from: Option<Timestamp>,
    /// How many
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    count: u32,
    /// Print JSON: an array of RFC 3339 UTC times, with their schedules if they are the fleet's
    #[arg(long)]
    json: bool,
}

/// A firing to come; without a schedule if it is only an expression's.
struct Coming {
    at: Timestamp,
    zone: TimeZone,
    name: Option<String>,
}

impl Next {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        let from = self.from.unwrap_or_else(Timestamp::now);
        let mut coming = match &self.cron {
            Some(expression) => self.of_expression(expression, from)?,
            None => self.of_fleet(config, from)?,
        };
        coming.sort_by_key(|coming| coming.at);
        coming.truncate(self.count as usize);
        if self.json {
            let times: Vec<Value> = coming.iter().map(|coming| self.in_json(coming)).collect();
            print::line(json!(times));
            return Ok(());
        }
        if coming.is_empty() {
            print::line("nothing fires by the clock");
        }
        for Coming { at, zone, name } in coming {
            let local = at.to_zoned(zone);
            let name = name.filter(|_| self.name.is_none()).map(|name| format!("  {name}"));
            let words = ago::in_words(from, at);
            let local = local.strftime("%a %Y-%m-%d %H:%M:%S %Z");
            print::line(format!("{local}  {words}{}", name.unwrap_or_default()));
        }
        Ok(())
    }

    fn in_json(&self, coming: &Coming) -> Value {
        match &coming.name {
            Some(name) if self.name.is_none() => {
                let (agent, schedule) = name.split_once('/').unwrap_or_default();
                json!({ "agent": agent, "schedule": schedule, "at": coming.at })
            }
            _ => json!(coming.at),
        }
    }

    fn of_expression(&self, expression: &str, from: Timestamp) -> Result<Vec<Coming>, Failure> {
        let cron: Cron = expression.parse().map_err(|error| usage("--cron", error))?;
        let zone = match &self.timezone {
            Some(name) => {
                name.parse::<Zone>().map_err(|error| usage("--timezone", error))?.time_zone().clone()
            }
            None => TimeZone::system(),
        };
        let times = times(&cron, &zone, from).take(self.count as usize);
        Ok(times.map(|at| Coming { at, zone: zone.clone(), name: None }).collect())
    }

    fn of_fleet(&self, config: Option<&Path>, from: Timestamp) -> Result<Vec<Coming>, Failure> {
        let place = Place::find(config)?;
        let roster = config::load(&place.config).loaded.roster;
        let views =
            place.ask(async |client| Ok(client.get::<Page<ScheduleView>>("schedules").await?.items))?;
        let mut coming = Vec::new();
        let mut known = false;
        for agent in &roster.agents {
            for schedule in &agent.schedules {
                let this = |name: &FullName| name.agent == agent.name && name.schedule == schedule.name;
                if self.name.as_ref().is_some_and(|name| !this(name)) {
                    continue;
                }
                known = true;
                let view =
                    views.iter().find(|view| view.agent == agent.name && view.schedule == schedule.name);
                if view.is_some_and(|view| view.status == ScheduleStatus::Disabled) {
                    continue;
                }
                let next = view.and_then(|view| view.next_run_at);
                let (name, zone) = (format!("{}/{}", agent.name, schedule.name), schedule.zone.time_zone());
                let times = coming_of(schedule, next, from, self.count as usize).into_iter();
                coming.extend(times.map(|at| Coming { at, zone: zone.clone(), name: Some(name.clone()) }));
            }
        }
        if let (Some(name), false) = (&self.name, known) {
            let message = format!("there is no schedule {}/{} in the config", name.agent, name.schedule);
            return Err(Failure::new(Exit::Refused, message));
        }
        Ok(coming)
    }
}

fn usage(option: &str, error: impl std::fmt::Display) -> Failure {
    Failure::usage(format!("{option}: {error}"))
}

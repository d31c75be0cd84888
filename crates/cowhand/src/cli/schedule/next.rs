//! `cowhand schedule next`: lists the next firings.

use std::path::Path;

use clap::Args;
use cowhand_core::cron::Cron;
use cowhand_core::duration;
use cowhand_core::plan::next_firings::times;
use cowhand_core::policy::Zone;
use cowhand_core::schedule::SkipReason;
use cowhand_core::shell::schedule_word;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Value, json};
use unicode_width::UnicodeWidthStr as _;

use super::{ScheduleFullName, refuse_unreadable, tries_again};
use crate::cli::job_filter::SinceTime;
use crate::cli::{Failure, complete, job, location, number, print, removed};
use cowhand_engine::fleet::{ScheduleStatus, ScheduleView};
use cowhand_web::api::{ComingFiring, Page, segment};

#[derive(Debug, Args)]
#[command(override_usage = "cowhand schedule next [OPTIONS] [AGENT/SCHEDULE]
       cowhand schedule next [OPTIONS] --cron <EXPR> [--timezone <ZONE>]")]
pub(in crate::cli) struct NextArgs {
    /// Schedule to show [default: the whole fleet]
    #[arg(value_name = "AGENT/SCHEDULE", conflicts_with = "cron", add = complete::schedules())]
    name: Option<ScheduleFullName>,
    /// Cron expression: five fields, six with leading seconds, or a shorthand such as @daily
    #[arg(long, value_name = "EXPR")]
    cron: Option<String>,
    /// IANA time zone of the expression [default: the system's]
    #[arg(long, value_name = "ZONE", requires = "cron", conflicts_with = "name")]
    timezone: Option<String>,
    /// Show firings after this: a time (local without a zone), a date, or how long ago (2h) [default: now]
    #[arg(long, value_name = "TIME")]
    from: Option<SinceTime>,
    /// Number of firings
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = number::between(1, 10_000))]
    count: u32,
    /// Print JSON: an array of RFC 3339 times in UTC, with their schedules if they are the fleet's
    #[arg(long)]
    json: bool,
}

/// Firing after the time of `--from`. A firing of a cron expression has no schedule name.
struct Coming {
    at: Timestamp,
    zone: TimeZone,
    name: Option<String>,
}

impl NextArgs {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        let from = self.from.map_or_else(Timestamp::now, SinceTime::at);
        let mut coming = match &self.cron {
            Some(expression) => self.of_expression(expression, from)?,
            None => self.of_fleet(config, from)?,
        };
        coming.sort_by_key(|coming| coming.at);
        coming.truncate(self.count as usize);
        if coming.is_empty() && self.cron.is_none() && self.name.is_none() {
            location::ask(config, async |client| refuse_unreadable(client, self.json))?;
        }
        if self.json {
            let times: Vec<Value> = coming.iter().map(|coming| self.in_json(coming)).collect();
            print::line(json!(times));
            return Ok(());
        }
        if coming.is_empty() {
            print::prose(&self.no_firings_message(config)?, 0);
        }
        let is_empty = coming.is_empty();
        self.print(coming, from);
        if self.cron.is_none() {
            self.print_notes(config, is_empty)?;
        }
        Ok(())
    }

    /// Prints missed firings, firings that wait, the ends of pauses, and the used-up providers for which the jobs of
    /// firings wait. Waiting firings and ends of pauses are left out if there are no next firings (`is_empty`), because
    /// `no_firings_message` covers them.
    fn print_notes(&self, config: Option<&Path>, is_empty: bool) -> Result<(), Failure> {
        let (views, is_alone) = schedules(config)?;
        let is_shown = |view: &&ScheduleView| {
            let is = |name: &ScheduleFullName| view.agent == name.agent && view.schedule == name.schedule;
            self.name.as_ref().is_none_or(is)
        };
        let now = Timestamp::now();
        for view in views.items.iter().filter(is_shown) {
            let name = format!("{}/{}", view.agent, view.schedule);
            match (&view.missed, view.status, view.skip_until) {
                (Some(missed), ..) => print::prose(&format!("{name}: {}", missed.note), 2),
                (_, ScheduleStatus::Paused, Some(until)) if !is_empty => {
                    let again = tries_again(until, is_alone, now, |until| format!("at {until:.0}"));
                    print::prose(&format!("{name} has paused itself, and {again}"), 2);
                }
                _ if let Some(late) = waiting_firing(view, now).filter(|_| !is_empty) => {
                    print::prose(&format!("{name} {late}"), 2);
                }
                _ => {}
            }
        }
        if is_empty && self.name.is_some() {
            return Ok(());
        }
        for (note, until, names) in used_up(views.items.iter().filter(is_shown)) {
            let (note, names) = (print::one_line(&note, 300), names.join(", "));
            print::prose(&format!("jobs of {names} wait until {until:.0} at the latest: {note}"), 2);
        }
        Ok(())
    }

    fn print(&self, coming: Vec<Coming>, from: Timestamp) {
        let rows = coming.into_iter().map(|Coming { at, zone, name }| {
            let local = at.to_zoned(zone).strftime("%a %Y-%m-%d %H:%M:%S %Z").to_string();
            let name = name.filter(|_| self.name.is_none()).unwrap_or_default();
            [local, duration::until(from, at), name]
        });
        let rows: Vec<[String; 3]> = rows.collect();
        let widest = |column: usize| rows.iter().map(|row| row[column].width()).max().unwrap_or_default();
        let (local, words) = (widest(0), widest(1));
        for row in &rows {
            let line =
                format!("{}  {}  {}", print::padded(&row[0], local), print::padded(&row[1], words), row[2]);
            print::line(line.trim_end());
        }
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

    /// Returns the firings from the API, which the dashboard uses too.
    fn of_fleet(&self, config: Option<&Path>, from: Timestamp) -> Result<Vec<Coming>, Failure> {
        let only = self.name.as_ref().map(|ScheduleFullName { agent, schedule }| {
            format!("&agent={agent}&schedule={}", segment(schedule.as_str()))
        });
        let from = segment(&from.to_string());
        let address = format!("schedules/next?from={from}&count={}{}", self.count, only.unwrap_or_default());
        let coming: Page<ComingFiring> =
            location::ask(config, async |client| match (client.get(&address).await, &self.name) {
                (Err(problem), Some(ScheduleFullName { agent, schedule })) => {
                    Err(removed::missing(client, agent, Some(schedule), problem))
                }
                (answer, _) => Ok(answer?),
            })?;
        coming.items.into_iter().map(Coming::of).collect()
    }

    /// Returns the reason why there are no firings to show.
    fn no_firings_message(&self, config: Option<&Path>) -> Result<String, Failure> {
        let Some(name) = &self.name else { return no_firings_of_fleet(config) };
        let address = name.address();
        let (view, alone): (ScheduleView, bool) =
            location::ask(config, async |client| Ok((client.get(&address).await?, client.is_alone())))?;
        let why = match (view.status, view.skip_reason) {
            (ScheduleStatus::Disabled, _) => "it is turned off".to_owned(),
            (ScheduleStatus::Error, _) => "it stopped because of an error".to_owned(),
            (ScheduleStatus::Finished, _) if view.kind == "delay" && view.skip_note.is_none() => {
                "it has fired, once".to_owned()
            }
            (ScheduleStatus::Finished, _) => {
                view.passed_while_off().unwrap_or("its `end_at` has passed").to_owned()
            }
            (ScheduleStatus::Paused, _) => {
                let when = |until| format!("at {until:.0}");
                let again = |until| format!(", and {}", tries_again(until, alone, Timestamp::now(), when));
                format!("it has paused itself{}", view.skip_until.map(again).unwrap_or_default())
            }
            // A schedule that the clock does not fire never has a next firing, so other reasons do not matter.
            _ if !view.is_by_clock() => {
                format!("a schedule of type {} does not fire by the clock", view.kind)
            }
            _ if view.preparing && alone => {
                "it has fired, no daemon runs, and it is prepared when a daemon starts".to_owned()
            }
            _ if view.preparing => "it has fired, and is being prepared".to_owned(),
            _ if let Some(late) = waiting_firing(&view, Timestamp::now()) => format!("it {late}"),
            (_, Some(SkipReason::AlreadyRunning)) if view.unsettled == 0 => {
                "its interval counts from the end of its running job".to_owned()
            }
            (_, Some(SkipReason::NotDue)) if let Some(never) = &view.never_fires => {
                format!("it can never fire: {never}")
            }
            (_, Some(SkipReason::NotDue)) if self.from.is_some() && view.next_run_at.is_some() => {
                "its calendar has no time after `--from` at which it can fire".to_owned()
            }
            (_, Some(SkipReason::NotDue)) => "its calendar has no time at which it can fire".to_owned(),
            _ => view.awaited().map(|why| print::one_line(why, 400)).unwrap_or_default(),
        };
        let (name, word) =
            (format!("{}/{}", view.agent, view.schedule), schedule_word(&view.agent, &view.schedule));
        Ok(format!("{name} has no next firing: {why}; `cowhand why {word}` shows details"))
    }
}

impl Coming {
    fn of(ComingFiring { agent, schedule, at, timezone }: ComingFiring) -> Result<Self, Failure> {
        let zone: Zone = timezone.parse().map_err(|error| usage("timezone", error))?;
        Ok(Self { at, zone: zone.time_zone().clone(), name: Some(format!("{agent}/{schedule}")) })
    }
}

/// Returns the providers that are used up, or whose reserve is reached, for which jobs of these schedules wait or would wait: the sentence about the provider,
/// the end of the wait, and the names of the schedules that the clock fires.
fn used_up<'v>(views: impl Iterator<Item = &'v ScheduleView>) -> Vec<(String, Timestamp, Vec<String>)> {
    let mut found: Vec<(String, Timestamp, Vec<String>)> = Vec::new();
    let is_held = |view: &&ScheduleView| {
        view.is_by_clock() && view.skip_note_reason.is_some_and(SkipReason::is_about_provider)
    };
    for view in views.filter(is_held) {
        let (Some(note), Some(until)) = (&view.skip_note, view.skip_until) else { continue };
        let name = format!("{}/{}", view.agent, view.schedule);
        match found.iter_mut().find(|(known, at, _)| known == note && *at == until) {
            Some((.., names)) => names.push(name),
            None => found.push((note.clone(), until, vec![name])),
        }
    }
    found
}

/// Describes the firing of a schedule that is due and waits: `was due 3m ago and waits: …`. None if no firing waits.
fn waiting_firing(view: &ScheduleView, now: Timestamp) -> Option<String> {
    let is_on = matches!(view.status, ScheduleStatus::Idle | ScheduleStatus::Running);
    let since = duration::relative_to_now(now, view.due_since.filter(|_| is_on)?);
    let (again, why) = (view.due_again_in_words(), print::one_line(view.awaited().unwrap_or_default(), 400));
    Some(format!("was due {since}{again} and waits: {why}"))
}

/// Returns the reason why the fleet has no next firing. It is the first of these reasons that applies:
///
/// - A firing waits.
/// - An interval counts from the end of a running job.
/// - A provider is used up. The text does not name the provider, because `print_notes` does.
/// - Nothing fires by the clock. If schedules are paused, the text names the pause that ends first.
fn no_firings_of_fleet(config: Option<&Path>) -> Result<String, Failure> {
    let (views, is_alone) = schedules(config)?;
    let now = Timestamp::now();
    if let Some((view, late)) = views.items.iter().find_map(|view| Some((view, waiting_firing(view, now)?))) {
        let (name, word) =
            (format!("{}/{}", view.agent, view.schedule), schedule_word(&view.agent, &view.schedule));
        return Ok(format!(
            "no time of a next firing is known: {name} {late}; `cowhand why {word}` shows details"
        ));
    }
    let counts_from_end = |view: &&ScheduleView| {
        let is_on = matches!(view.status, ScheduleStatus::Idle | ScheduleStatus::Running);
        is_on && view.is_by_clock() && view.skip_reason == Some(SkipReason::AlreadyRunning)
    };
    if let Some(view) = views.items.iter().find(counts_from_end) {
        let (name, word) =
            (format!("{}/{}", view.agent, view.schedule), schedule_word(&view.agent, &view.schedule));
        return Ok(format!(
            "no time of a next firing is known: the interval of {name} counts from the end of its running \
             job; `cowhand why {word}` shows details"
        ));
    }
    if !used_up(views.items.iter()).is_empty() {
        return Ok("no time of a next firing is known".to_owned());
    }
    let paused = views.items.iter().filter(|view| view.status == ScheduleStatus::Paused);
    let first = paused.filter_map(|view| Some((view.skip_until?, view))).min_by_key(|(until, _)| *until);
    Ok(match first {
        Some((until, view)) if is_alone && until <= now => format!(
            "nothing fires by the clock before a daemon runs; the pause of {}/{} is over",
            view.agent, view.schedule
        ),
        Some((until, view)) => format!(
            "nothing fires by the clock before {until:.0}, when {}/{} tries again after its pause{}",
            view.agent,
            view.schedule,
            job::with_daemon(is_alone)
        ),
        None => "nothing fires by the clock".to_owned(),
    })
}

/// Returns all schedules, and true if no daemon runs.
fn schedules(config: Option<&Path>) -> Result<(Page<ScheduleView>, bool), Failure> {
    location::ask(config, async |client| Ok((client.get("schedules").await?, client.is_alone())))
}

fn usage(option: &str, error: impl std::fmt::Display) -> Failure {
    Failure::usage(format!("{option}: {error}"))
}

//! `cowhand schedule`: shows schedules and their next firings, and turns them on and off.

mod next;

use std::path::Path;
use std::str::FromStr;

use clap::{Args, Subcommand};
use cowhand_core::duration;
use cowhand_core::id::{AgentName, ScheduleName};
use cowhand_core::schedule::SkipReason;
use jiff::Timestamp;

use super::advice::with_config_option;
use super::location::Connection;
use super::print::{self, Table};
use super::{Exit, Failure, complete, job, location, removed, status};
use cowhand_engine::fleet::{ScheduleStatus, ScheduleView};
use cowhand_web::api::{Page, StatusView, segment};

#[derive(Debug, Subcommand)]
pub(super) enum ScheduleVerb {
    /// List all schedules of the fleet
    List(ScheduleListArgs),
    /// Show one schedule
    Show(OneScheduleArgs),
    /// Show the next firings: of the fleet, of one schedule, or of a cron expression
    Next(next::NextArgs),
    /// Turn a schedule on; due times while it was off are not fired later
    Enable(OneScheduleArgs),
    /// Turn a schedule off until somebody turns it on; running jobs continue
    Disable(OneScheduleArgs),
}

#[derive(Debug, Args)]
pub(super) struct ScheduleListArgs {
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct OneScheduleArgs {
    /// Agent and schedule, as `cowhand schedule list` shows them
    #[arg(value_name = "AGENT/SCHEDULE", add = complete::schedules())]
    name: ScheduleFullName,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Name in the form `agent/schedule`. Names of agents contain no slash, so the first slash separates the two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ScheduleFullName {
    pub(super) agent: AgentName,
    pub(super) schedule: ScheduleName,
}

impl FromStr for ScheduleFullName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (agent, schedule) = text.split_once('/').ok_or("expected AGENT/SCHEDULE")?;
        Ok(Self {
            agent: agent.parse().map_err(|error| format!("{error}"))?,
            schedule: schedule.parse().map_err(|error| format!("{error}"))?,
        })
    }
}

impl ScheduleFullName {
    /// Returns the path of the schedule in the API.
    pub(super) fn address(&self) -> String {
        format!("schedules/{}/{}", self.agent, segment(self.schedule.as_str()))
    }
}

/// Name of an agent, or of one of its schedules, in the form `agent` or `agent/schedule`.
#[derive(Debug, Clone)]
pub(super) enum AgentOrSchedule {
    Agent(AgentName),
    Schedule(ScheduleFullName),
}

impl FromStr for AgentOrSchedule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains('/') {
            return text.parse().map(Self::Schedule);
        }
        text.parse().map(Self::Agent).map_err(|error| format!("{error}"))
    }
}

impl ScheduleVerb {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        match self {
            Self::List(output) => list(config, output.json),
            Self::Show(named) => location::ask(config, async |client| {
                let ScheduleFullName { agent, schedule } = &named.name;
                match client.get::<ScheduleView>(&named.name.address()).await {
                    Ok(view) => {
                        print_store_problem(client, named.json).await?;
                        named.print(&view, client.is_alone());
                    }
                    Err(problem) => {
                        return removed::show(client, agent, Some(schedule), problem, named.json).await;
                    }
                }
                Ok(())
            }),
            Self::Next(next) => next.run(config),
            Self::Enable(named) => named.switch(config, "enable"),
            Self::Disable(named) => named.switch(config, "disable"),
        }
    }
}

fn list(config: Option<&Path>, json: bool) -> Result<(), Failure> {
    location::ask(config, async |client| {
        let views = client.get::<Page<ScheduleView>>("schedules").await?.items;
        if views.is_empty() {
            refuse_unreadable(client, json)?;
        }
        print_store_problem(client, json).await?;
        if json {
            print::json(&views);
        } else {
            table(&views, client.is_alone(), Timestamp::now()).print();
        }
        Ok(())
    })
}

/// Fails if no daemon runs and the schedules cannot be read, because the config has errors.
pub(super) fn refuse_unreadable(client: &Connection<'_>, json: bool) -> Result<(), Failure> {
    if !client.has_config_errors() {
        return Ok(());
    }
    // A note on standard error says that the config has errors.
    if !json {
        let note = client.location().config_error_note();
        print::prose(&format!("the schedules cannot be read, because {note}"), 0);
    }
    Err(Failure::reported(Exit::Config))
}

/// Prints why no schedule can fire, if the store or the disk cannot be written. With `--json` the reason is printed as
/// a note, because the JSON has no field for the reason.
async fn print_store_problem(client: &Connection<'_>, json: bool) -> Result<(), Failure> {
    let of_daemon = client.get::<StatusView>("status").await?.daemon.store_problem;
    match of_daemon.or_else(|| client.disk_problem()) {
        Some(problem) if json => print::note(format!("no new work is accepted: {problem}")),
        problem => status::print_store_problem(problem.as_deref()),
    }
    Ok(())
}

impl OneScheduleArgs {
    fn switch(self, config: Option<&Path>, verb: &str) -> Result<(), Failure> {
        let address = format!("{}/{verb}", self.name.address());
        let view =
            location::ask(config, async |client| Ok(client.post::<ScheduleView>(&address, &()).await?))?;
        print::remember_done(format!("{}/{} is {}", view.agent, view.schedule, view.status.as_str()));
        self.print(&view, false);
        Ok(())
    }

    fn print(&self, view: &ScheduleView, is_alone: bool) {
        if self.json {
            print::json(view);
        } else {
            table(std::slice::from_ref(view), is_alone, Timestamp::now()).print();
        }
    }
}

/// Checks whether the schedule has no skip reason, or only the reason that it is not due.
const fn has_no_other_reason(view: &ScheduleView) -> bool {
    matches!(view.skip_reason, Some(SkipReason::NotDue) | None)
}

/// Formats when a paused schedule tries again: `tries again in 57m`. `when` formats the end of the pause. If the pause
/// has ended and no daemon runs, the next daemon tries again.
pub(super) fn tries_again(
    until: Timestamp,
    is_alone: bool,
    now: Timestamp,
    when: impl FnOnce(Timestamp) -> String,
) -> String {
    if is_alone && until <= now {
        return "tries again when a daemon runs".to_owned();
    }
    format!("tries again {}{}", when(until), job::with_daemon(is_alone))
}

/// Formats the time at which a paused schedule tries again, the end of the pause of a schedule that a person disabled
/// during the pause, or the time since which a starved schedule is due. Neither
/// time is a next firing, so the column NEXT does not show it. Returns an empty text for all other schedules.
fn time_note(view: &ScheduleView, is_alone: bool, now: Timestamp) -> String {
    match (view.status, view.skip_until, view.due_since) {
        (ScheduleStatus::Paused, Some(until), _) => {
            format!("; it {}", tries_again(until, is_alone, now, |until| duration::until(now, until)))
        }
        (ScheduleStatus::Disabled, Some(until), _) => {
            format!("; the pause ends {}{}", duration::until(now, until), job::with_daemon(is_alone))
        }
        (_, _, Some(since)) if view.is_starved(now) => {
            format!("; due since {}{}", duration::relative_to_now(now, since), view.due_again_in_words())
        }
        _ => String::new(),
    }
}

/// Builds the table of schedules. `is_alone` means that no daemon runs, so nothing prepares a firing.
pub(super) fn table(views: &[ScheduleView], is_alone: bool, now: Timestamp) -> Table {
    let mut table = Table::new(&["SCHEDULE", "TYPE", "STATUS", "LAST OWN RUN", "NEXT", "WHY"])
        .optional_columns(&["LAST OWN RUN", "TYPE", "NEXT", "WHY"]);
    let when = |at: Option<Timestamp>| at.map(|at| duration::relative_to_now(now, at)).unwrap_or_default();
    for view in views {
        // The other columns already show these reasons.
        let plain = |reason: &SkipReason| matches!(reason, SkipReason::NotDue | SkipReason::UnsupportedType);
        let note = view
            .skip_note
            .as_deref()
            .filter(|_| view.skip_note_reason == view.skip_reason)
            .map(|note| print::cell(&format!(": {note}")))
            .unwrap_or_default();
        let by = view.preparing_by.as_ref().map(|by| format!(": {by}")).unwrap_or_default();
        // The note of a schedule that is turned off counts its waiting jobs and its firings in preparation.
        let is_counted = view.status == ScheduleStatus::Disabled && !note.is_empty();
        let waits = match (view.preparing && !is_counted).then_some(by) {
            Some(by) if is_alone => Some(format!("it is prepared when a daemon starts{by}")),
            Some(by) => Some(format!("being prepared{by}")),
            None if view.status == ScheduleStatus::Error => None,
            None if has_no_other_reason(view) && view.missed.is_some() => {
                view.missed.as_ref().map(|missed| format!("missed: {}", missed.note))
            }
            None => view
                .skip_reason
                .filter(|reason| !plain(reason) || (*reason == SkipReason::NotDue && !note.is_empty()))
                .map(|reason| match note.strip_prefix(": ") {
                    // The note states that the job is pending, or that the schedule can never fire, so the reason is
                    // left out.
                    Some(note) if reason == SkipReason::AlreadyRunning || view.never_fires.is_some() => {
                        note.to_owned()
                    }
                    _ => format!("{reason}{note}{}", time_note(view, is_alone, now)),
                }),
        };
        let waits = match (waits, &view.prepare_error) {
            (_, Some(_)) if view.status == ScheduleStatus::Disabled => {
                view.unprepared().as_deref().map(print::cell)
            }
            (Some(waits), Some(error)) => Some(print::cell(&format!("{waits}; {error}"))),
            (waits, _) => waits,
        };
        let why = waits.or_else(|| view.last_error.as_deref().map(print::cell));
        table.row([
            format!("{}/{}", view.agent, view.schedule),
            view.kind.clone(),
            view.status.as_str().to_owned(),
            when(view.last_run_at),
            view.next_run_at.map(|at| duration::until(now, at)).unwrap_or_default(),
            why.map(|why| with_config_option(&why).into_owned()).unwrap_or_default(),
        ]);
    }
    table
}

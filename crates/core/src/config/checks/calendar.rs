//! Checks for schedules that can never fire, because of their calendar.

use crate::config::load::{Draft, Loader};
use crate::config::problem::Problem;
use crate::config::resolve::{schedule_at, schedule_node};
use crate::plan::closed::closed_for_ever;
use crate::policy::ClosedBy;
use crate::roster::{Agent, Schedule};
use crate::trigger::{TriggerConfig, TriggerKind};

pub(in crate::config) fn check(loader: &mut Loader<'_>, draft: &Draft, agent: &Agent) {
    for schedule in agent.schedules.iter().filter(|schedule| schedule.enabled) {
        // A person can trigger a schedule at any time.
        if matches!(schedule.trigger.kind(), TriggerKind::Hand) {
            continue;
        }
        let Some(closed_by) = closed_for_ever(schedule, loader.environment.now) else { continue };
        let keys: Vec<&str> = closed_by.into_iter().map(ClosedBy::key).collect();
        let name = format!("{}/{}", agent.name, schedule.name);
        let end = schedule.timing.end_at.filter(|end| *end <= loader.environment.now);
        let (message, help) = match end {
            Some(end) => (
                format!("`{name}` does not fire any more: its `end_at` ({end}) has passed"),
                "set a later `end_at`, or remove the schedule".to_owned(),
            ),
            None => {
                (format!("`{name}` can never fire: {}", reason(schedule, &keys)), advice(schedule, &keys))
            }
        };
        let key = keys.last().copied().unwrap_or("type");
        let written = schedule_node(draft, schedule.name.as_str()).and_then(|node| node.entry(key));
        // A key of `defaults` is right for other schedules.
        let own = schedule_at(draft, schedule.name.as_str());
        let at =
            written.map(|written| written.key_at).filter(|at| at.file == own.file && at.start > own.start);
        let problem = Problem::warning(at.unwrap_or(own), message);
        let key = draft.key_of(&format!("schedules.{}.{key}", schedule.name));
        loader.problems.add(problem.key(key).help(Some(help)));
    }
}

fn reason(schedule: &Schedule, keys: &[&str]) -> String {
    let list = quoted(keys, "and");
    let allow = if matches!(keys, ["end_at" | "start_at"]) { "allows" } else { "allow" };
    match &schedule.trigger {
        TriggerConfig::Cron { .. } if keys == ["end_at"] => {
            "none of its times is before its `end_at`".to_owned()
        }
        TriggerConfig::Cron { .. } => format!("its {list} {allow} none of its times"),
        TriggerConfig::Delay { run_at: Some(_), .. } => {
            format!("its {list} {allow} no time from its `run_at` on")
        }
        _ => format!("its {list} {allow} no time"),
    }
}

fn advice(schedule: &Schedule, keys: &[&str]) -> String {
    let own = match &schedule.trigger {
        TriggerConfig::Cron { .. } => Some("cron"),
        TriggerConfig::Delay { run_at: Some(_), .. } => Some("run_at"),
        _ => None,
    };
    let all: Vec<&str> = own.into_iter().chain(keys.iter().copied()).collect();
    let advice = format!("change {}", quoted(&all, "or"));
    let hours = schedule.timing.active_hours.as_ref().filter(|_| keys.contains(&"active_hours"));
    let zone = hours.and_then(|hours| hours.timezone.as_ref()).filter(|zone| **zone != schedule.zone);
    match zone.filter(|_| own == Some("cron")) {
        Some(zone) => {
            let zone_of_cron = &schedule.zone;
            format!("{advice}; the times of `cron` are in {zone_of_cron}, those of `active_hours` in {zone}")
        }
        None => advice,
    }
}

fn quoted(keys: &[&str], last: &str) -> String {
    let quoted: Vec<String> = keys.iter().map(|key| format!("`{key}`")).collect();
    match quoted.split_last() {
        Some((end, rest)) if !rest.is_empty() => format!("{} {last} {end}", rest.join(", ")),
        _ => quoted.join(""),
    }
}

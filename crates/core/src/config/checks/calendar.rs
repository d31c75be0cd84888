//! Checks for schedules that can never fire, because of their calendar.

use crate::config::load::{Draft, Loader};
use crate::config::problem::Problem;
use crate::config::resolve::{schedule_at, schedule_node};
use crate::plan::NeverFires;
use crate::plan::closed::quoted;
use crate::roster::{Agent, Schedule};
use crate::trigger::{Driver, TriggerConfig};

pub(in crate::config) fn check(loader: &mut Loader<'_>, draft: &Draft, agent: &Agent) {
    let now = loader.environment.now;
    for schedule in &agent.schedules {
        let Some(NeverFires { keys, reason }) = schedule.never_fires(now) else { continue };
        let name = format!("{}/{}", agent.name, schedule.name);
        let is_by_clock = schedule.trigger.driver() == Driver::Clock;
        let (message, help) = match schedule.timing.end_at.filter(|end| *end <= now) {
            Some(_) => (
                if is_by_clock {
                    format!("`{name}` has no further due times: {reason}")
                } else {
                    format!("`{name}` does not fire any more: {reason}")
                },
                // Only the store knows whether a due time was missed.
                if is_by_clock {
                    "set a later `end_at`, or remove the schedule; a due time before `end_at` that was missed can run as long \
                     as the schedule is in the config"
                } else {
                    "set a later `end_at`, or remove the schedule"
                }
                .to_owned(),
            ),
            None => (format!("`{name}` can never fire: {reason}"), advice(schedule, &keys)),
        };
        let key = keys.last().copied().unwrap_or("type");
        let written = schedule_node(draft, schedule.name.as_str()).and_then(|node| node.entry(key));
        // If the key is in `defaults`, where it may be right for other schedules, the warning points to this schedule.
        let schedule_start = schedule_at(draft, schedule.name.as_str());
        let at = written
            .map(|written| written.key_at)
            .filter(|at| at.file == schedule_start.file && at.start > schedule_start.start);
        let problem = Problem::warning(at.unwrap_or(schedule_start), message);
        let key = draft.key_of(&format!("schedules.{}.{key}", schedule.name));
        loader.problems.add(problem.key(key).help(Some(help)));
    }
}

fn advice(schedule: &Schedule, keys: &[&str]) -> String {
    let trigger_key = match &schedule.trigger {
        TriggerConfig::Cron { .. } => Some("cron"),
        TriggerConfig::Delay { run_at: Some(_), .. } => Some("run_at"),
        _ => None,
    };
    let all: Vec<&str> = trigger_key.into_iter().chain(keys.iter().copied()).collect();
    let advice = format!("change {}", quoted(&all, "or"));
    let hours = schedule.timing.active_hours.as_ref().filter(|_| keys.contains(&"active_hours"));
    let zone = hours.and_then(|hours| hours.timezone.as_ref()).filter(|zone| **zone != schedule.zone);
    match zone.filter(|_| trigger_key == Some("cron")) {
        Some(zone) => {
            let zone_of_cron = &schedule.zone;
            format!("{advice}; the times of `cron` are in {zone_of_cron}, those of `active_hours` in {zone}")
        }
        None => advice,
    }
}

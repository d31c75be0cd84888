//! The firings to come of one schedule, as far as the clock decides them.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::cron::Cron;
use crate::roster::Schedule;
use crate::trigger::TriggerConfig;

/// Enough to find the next active hours, and few enough for those that never come.
const MOST_TRIED: usize = 100_000;

/// After `from`, at most so many. `next` is what the plan says about the schedule as it stands. An interval counts from
/// the end of each run, so its times hold if the runs take no time.
pub fn coming(schedule: &Schedule, next: Option<Timestamp>, from: Timestamp, count: usize) -> Vec<Timestamp> {
    match &schedule.trigger {
        TriggerConfig::Cron { expression, .. } => {
            let zone = schedule.zone.time_zone();
            let all = times(expression, zone, from).take(MOST_TRIED);
            all.filter(|at| schedule.timing.allows(*at, zone)).take(count).collect()
        }
        TriggerConfig::Interval { interval } => {
            let step = interval.duration();
            let first = next.unwrap_or(from).max(from);
            std::iter::successors(Some(first), |at| at.checked_add(step).ok()).take(count).collect()
        }
        _ => next.into_iter().filter(|at| *at >= from).take(count).collect(),
    }
}

/// Every time of an expression after `from`.
pub fn times(cron: &Cron, zone: &TimeZone, from: Timestamp) -> impl Iterator<Item = Timestamp> {
    std::iter::successors(cron.next_after(from, zone), |at| cron.next_after(*at, zone))
}

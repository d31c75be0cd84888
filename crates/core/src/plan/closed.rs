//! Schedules whose calendar never lets them fire.

use jiff::Timestamp;

use super::next_firings::{MAX_TRIED, just_before};
use crate::policy::{ClosedBy, Timing};
use crate::roster::Schedule;
use crate::trigger::TriggerConfig;

/// Returns the keys of the calendar that prevent every firing after `now`; none if the schedule can fire.
pub(crate) fn closed_for_ever(schedule: &Schedule, now: Timestamp) -> Option<Vec<ClosedBy>> {
    let timing = &schedule.timing;
    let closed_by = closed_from(now, schedule, timing)?;
    let without_end = Timing { end_at: None, ..timing.clone() };
    // The end is named only if it matters.
    let other_keys = timing.end_at.and_then(|_| closed_from(now, schedule, &without_end));
    Some(other_keys.unwrap_or(closed_by))
}

fn closed_from(now: Timestamp, schedule: &Schedule, timing: &Timing) -> Option<Vec<ClosedBy>> {
    let zone = schedule.zone.time_zone();
    let mut from = timing.start_at.map_or(now, |start| start.max(now));
    let mut closed_by: Vec<ClosedBy> = Vec::new();
    if let TriggerConfig::Cron { expression: cron, .. } = &schedule.trigger {
        from = just_before(from);
        for _ in 0..MAX_TRIED {
            let Some(due) = cron.next_after(from, zone) else { break };
            let by = timing.closed_by(due, zone)?;
            if !closed_by.contains(&by) {
                closed_by.push(by);
            }
            let Some(allowed) = timing.next_allowed(due, zone) else { break };
            from = just_before(allowed).max(due);
        }
    } else {
        if let TriggerConfig::Delay { run_at: Some(run_at), .. } = &schedule.trigger {
            from = from.max(*run_at);
        }
        if timing.next_allowed(from, zone).is_some() {
            return None;
        }
        closed_by.extend(timing.closed_by(from, zone));
    }
    if timing.end_at.is_some() && !closed_by.contains(&ClosedBy::EndAt) {
        closed_by.push(ClosedBy::EndAt);
    }
    Some(closed_by)
}

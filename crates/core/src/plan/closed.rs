//! Schedules whose calendar never allows a firing.

use jiff::Timestamp;

use super::next_firings::{MAX_TRIED, just_before};
use crate::policy::{ClosedBy, Timing};
use crate::roster::Schedule;
use crate::trigger::{TriggerConfig, TriggerKind};

/// The keys of the calendar that prevent every firing of a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeverFires {
    pub keys: Vec<&'static str>,
    /// Explanation in words: which keys allow none of its times.
    pub reason: String,
}

impl Schedule {
    /// Returns why the trigger of the schedule cannot fire it after `now`; none if it can, or if the schedule is
    /// disabled. A person can still fire such a schedule.
    pub fn never_fires(&self, now: Timestamp) -> Option<NeverFires> {
        let by_hand = matches!(self.trigger.kind(), TriggerKind::Hand);
        if !self.enabled || by_hand {
            return None;
        }
        let keys: Vec<&str> = closed_for_ever(self, now)?.into_iter().map(ClosedBy::key).collect();
        let reason = match self.timing.end_at.filter(|end| *end <= now) {
            Some(end) => format!("its `end_at` ({end}) has passed"),
            None => reason(self, &keys),
        };
        Some(NeverFires { keys, reason })
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

/// Lists keys in words: `` `a`, `b` and `c` ``.
pub(crate) fn quoted(keys: &[&str], last: &str) -> String {
    let quoted: Vec<String> = keys.iter().map(|key| format!("`{key}`")).collect();
    match quoted.split_last() {
        Some((end, rest)) if !rest.is_empty() => format!("{} {last} {end}", rest.join(", ")),
        _ => quoted.join(""),
    }
}

/// Returns the keys of the calendar that prevent every firing after `now`; none if the schedule can fire.
fn closed_for_ever(schedule: &Schedule, now: Timestamp) -> Option<Vec<ClosedBy>> {
    let timing = &schedule.timing;
    if timing.is_always_open() {
        return None;
    }
    let closed_by = closed_from(now, schedule, timing)?;
    let without_end = Timing { end_at: None, ..timing.clone() };
    // Name `end_at` only if the other keys alone do not prevent every firing.
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

//! The part of a schedule's record that comes from the config when it is loaded or reloaded.

use jiff::Timestamp;

use super::Schedule;
use crate::breaker::BreakerState;
use crate::id::AgentName;
use crate::schedule::{DisabledBy, ScheduleRecord, ScheduleState};
use crate::trigger::TriggerConfig;

impl ScheduleRecord {
    /// Creates the record of a schedule that is loaded for the first time.
    pub fn new(agent: &AgentName, schedule: &Schedule, now: Timestamp) -> Self {
        Self {
            id: schedule.id,
            agent: agent.clone(),
            name: schedule.name.clone(),
            state: ScheduleState::Active,
            trigger: schedule.trigger.clone(),
            run_at: run_at(&schedule.trigger, now),
            generation: 0,
            armed_at: now,
            interval_count: 0,
            last_due: None,
            replay_until: None,
            last_run_at: None,
            counted_from: None,
            last_error: None,
            polled_at: None,
            fill: false,
            fill_count: 0,
            run_error: None,
            waiting: None,
            breaker_state: BreakerState::default(),
            pause_boot: None,
        }
    }

    /// Updates the record after a reload. Only a changed trigger is armed again: a delay that has fired gets its new
    /// time, and a trigger with an error may try again. A schedule that a person disabled stays disabled.
    pub fn reload(&mut self, schedule: &Schedule, now: Timestamp) -> bool {
        if self.trigger == schedule.trigger {
            return false;
        }
        self.trigger = schedule.trigger.clone();
        self.run_at = run_at(&schedule.trigger, now);
        self.armed_at = now;
        self.waiting = None;
        self.breaker_state = BreakerState::default();
        if !matches!(self.state, ScheduleState::Disabled { why: DisabledBy::Person }) {
            self.state = ScheduleState::Active;
        }
        true
    }

    /// Checks whether its `end_at` has passed, even if no daemon ran then to record it. A cron firing that waits still
    /// runs before.
    pub fn is_finished(&self, schedule: &Schedule, now: Timestamp) -> bool {
        let waits = self.waiting.is_some() && matches!(schedule.trigger, TriggerConfig::Cron { .. });
        let on = matches!(self.state, ScheduleState::Active | ScheduleState::Finished);
        on && schedule.is_over(now) && !waits
    }
}

fn run_at(trigger: &TriggerConfig, now: Timestamp) -> Option<Timestamp> {
    match trigger {
        TriggerConfig::Delay { run_at: Some(at), .. } => Some(*at),
        TriggerConfig::Delay { r#in: Some(wait), .. } => now.checked_add(wait.duration()).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trigger::Occurrence;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_705_654_800 + second).unwrap()
    }

    fn schedule(trigger: &str) -> Schedule {
        Schedule::new(&agent(), "nightly".parse().unwrap(), serde_json::from_str(trigger).unwrap())
    }

    fn agent() -> AgentName {
        "coder".parse().unwrap()
    }

    #[test]
    fn a_delay_is_done_once_and_armed_by_a_new_time() {
        let first = schedule(r#"{"type":"delay","in":"10s"}"#);
        let mut record = ScheduleRecord::new(&agent(), &first, at(0));
        assert!(!record.reload(&first, at(5)), "the time counts from the first load");
        assert_eq!(record.run_at, Some(at(10)));
        record.passed(&Occurrence::Delay(at(10)).key(0), at(10));
        assert_eq!(record.state, ScheduleState::Disabled { why: DisabledBy::Done });
        let mut by_hand = record.clone();
        assert!(by_hand.is_done() && !by_hand.enable(at(20).into()), "it fires once");
        assert!(!by_hand.disable(DisabledBy::Person), "and is off already");
        by_hand.state = ScheduleState::Disabled { why: DisabledBy::Person };
        assert!(by_hand.is_done() && !by_hand.enable(at(20).into()), "as an earlier version stored it");
        assert!(record.reload(&schedule(r#"{"type":"delay","in":"1m"}"#), at(20)));
        assert_eq!((record.run_at, &record.state), (Some(at(80)), &ScheduleState::Active));
    }

    #[test]
    fn a_reload_never_turns_on_what_a_person_turned_off() {
        let mut record = ScheduleRecord::new(&agent(), &schedule(r#"{"type":"manual"}"#), at(0));
        record.disable(DisabledBy::Person);
        assert!(record.reload(&schedule(r#"{"type":"cron","expression":"@daily"}"#), at(9)));
        assert_eq!(record.state, ScheduleState::Disabled { why: DisabledBy::Person });
        record.state = ScheduleState::Error { reason: "no such repository".into() };
        assert!(record.reload(&schedule(r#"{"type":"cron","expression":"@hourly"}"#), at(10)));
        assert_eq!(record.state, ScheduleState::Active);
    }
}

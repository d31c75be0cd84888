//! The part of a schedule's record that comes from the config when it is loaded or reloaded.

use jiff::Timestamp;

use super::Schedule;
use crate::breaker::BreakerState;
use crate::id::AgentName;
use crate::schedule::{DisabledBy, ScheduleRecord, ScheduleState, SkipReason, WaitingFiring};
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
            interval_from: None,
            last_error: None,
            trigger_error: None,
            polled_at: None,
            fill: false,
            fill_count: 0,
            run_error: None,
            waiting: None,
            breaker_state: BreakerState::default(),
            pause_while_disabled: None,
            pause_boot: None,
            absent_since: (!schedule.enabled).then_some(now),
        }
    }

    /// Updates the record after the config was loaded again, and returns whether the record has changed. A changed
    /// trigger is armed again: a delay that has fired gets its new time. A trigger with an error tries again even if it
    /// has not changed, because its credentials may have changed. A schedule that a person disabled stays disabled.
    pub fn reload(&mut self, schedule: &Schedule, now: Timestamp) -> bool {
        let returned = self.load_presence(schedule.enabled, now);
        if self.trigger == schedule.trigger {
            return self.retry_trigger(now) | returned;
        }
        self.clear_trigger_error();
        self.trigger = schedule.trigger.clone();
        self.run_at = run_at(&schedule.trigger, now);
        self.armed_at = now;
        if self.is_delay() {
            self.last_due = None;
        }
        self.waiting = None;
        (self.breaker_state, self.pause_while_disabled) = (BreakerState::default(), None);
        if !matches!(self.state, ScheduleState::Disabled { why: DisabledBy::Person }) {
            self.state = ScheduleState::Active;
        }
        true
    }

    /// Ends the pause of the schedule if its breaker is turned off, and returns whether it was paused.
    pub fn resume_without_breaker(&mut self, schedule: &Schedule, now: Timestamp) -> bool {
        !schedule.breaker.is_on() && self.reset_breaker(now)
    }

    /// Records that the config has the schedule with `enabled: false`, or not at all. Returns whether that is new.
    pub fn leave(&mut self, now: Timestamp) -> bool {
        let is_new = self.absent_since.is_none();
        self.absent_since.get_or_insert(now);
        is_new
    }

    /// Records whether the config has the schedule enabled, and returns whether that has changed. After an absence, due
    /// times count from now: due times that passed meanwhile do not fire. The generation of firing keys does not
    /// change, so that nothing fires twice.
    fn load_presence(&mut self, is_enabled: bool, now: Timestamp) -> bool {
        if !is_enabled {
            return self.leave(now);
        }
        let is_back = self.absent_since.take().is_some();
        if is_back {
            self.count_due_times_from(now);
            self.interval_from = self.interval_from.map(|_| now.into());
            (self.polled_at, self.fill) = (self.polled_at.map(|_| now.into()), false);
            self.waiting = None;
        }
        is_back
    }

    /// Checks whether an active or finished schedule does not fire any more: its `end_at` has passed, or it is a delay
    /// whose time passed while the schedule was off. A daemon does not need to have recorded this. A firing of a
    /// cron expression or an interval that waits still runs before the schedule is finished.
    pub fn is_finished(&self, schedule: &Schedule, now: Timestamp) -> bool {
        let may_run = |waiting: &WaitingFiring| match schedule.trigger {
            TriggerConfig::Cron { .. } => true,
            TriggerConfig::Interval { .. } => waiting.reason != SkipReason::OutsideHours,
            _ => false,
        };
        let waits = self.waiting.as_ref().is_some_and(may_run);
        let on = matches!(self.state, ScheduleState::Active | ScheduleState::Finished);
        on && !waits && (schedule.is_over(now) || self.passed_while_off(schedule).is_some())
    }

    /// Returns the time of a delay whose time passed while the schedule was not active: turned off, paused, finished or
    /// not in the config. Such a delay does not fire before it gets a new time.
    pub fn passed_while_off(&self, schedule: &Schedule) -> Option<Timestamp> {
        let due = schedule.delay_due(self.run_at?);
        let is_passed = self.last_due.is_some_and(|last| last == self.armed_at && due < last);
        (self.is_delay() && is_passed).then_some(due)
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
    use crate::breaker::Pause;
    use crate::trigger::Occurrence;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_705_654_800 + second).unwrap()
    }

    type Change = fn(&mut ScheduleRecord, &Schedule);

    fn schedule(trigger: &str) -> Schedule {
        Schedule::new(&agent(), "nightly".parse().unwrap(), serde_json::from_str(trigger).unwrap())
    }

    fn agent() -> AgentName {
        "coder".parse().unwrap()
    }

    #[test]
    fn a_delay_fires_once_and_is_armed_again_by_a_new_time() {
        let first = schedule(r#"{"type":"delay","in":"10s"}"#);
        let mut record = ScheduleRecord::new(&agent(), &first, at(0));
        assert!(!record.reload(&first, at(5)), "the time counts from the first load");
        assert_eq!(record.run_at, Some(at(10)));
        record.record_outcome(&Occurrence::Delay(at(10)).key(0), at(10));
        assert_eq!(record.state, ScheduleState::Disabled { why: DisabledBy::Done });
        assert!(record.is_done() && !record.enable(at(20).into()), "a delay fires once");
        assert!(record.reload(&schedule(r#"{"type":"delay","in":"1m"}"#), at(20)));
        assert_eq!((record.run_at, &record.state), (Some(at(80)), &ScheduleState::Active));
    }

    #[test]
    fn a_delay_whose_time_passed_while_it_was_off_does_not_fire() {
        let once = schedule(r#"{"type":"delay","in":"10s"}"#);
        let record = || ScheduleRecord::new(&agent(), &once, at(0));
        let passed = |record: &ScheduleRecord| record.passed_while_off(&once);
        let pause = || Pause { reason: "it fails".into(), until: at(20) };
        let ways: [(&str, Change); 4] = [
            ("disabled by a person", |record, _| {
                record.disable(DisabledBy::Person);
                record.enable(at(20).into());
            }),
            ("absent from the config", |record, once| {
                record.leave(at(5));
                record.reload(once, at(20));
            }),
            ("finished", |record, _| {
                record.finish();
                record.reopen(at(20));
            }),
            ("paused", |record, _| {
                record.resume(at(20).into());
            }),
        ];
        for (case, off_and_on) in ways {
            let mut record = record();
            if case == "paused" {
                record.pause(pause(), at(1).into());
            }
            off_and_on(&mut record, &once);
            assert_eq!(
                (record.state.clone(), passed(&record)),
                (ScheduleState::Active, Some(at(10))),
                "{case}"
            );
            assert!(record.is_finished(&once, at(21)), "{case}");
            // It does not count as a delay that has fired, even if a person disables it again.
            record.disable(DisabledBy::Person);
            assert!(!record.is_done(), "{case}");
            assert!(record.enable(at(30).into()), "{case}");
            assert_eq!(passed(&record), Some(at(10)), "{case}");
            // A new time arms it again, even if this time has passed.
            let again = schedule(r#"{"type":"delay","run_at":"2024-01-19T09:00:00Z"}"#);
            assert!(record.reload(&again, at(40)));
            assert_eq!(
                (record.passed_while_off(&again), record.is_finished(&again, at(41))),
                (None, false),
                "{case}"
            );
        }
        // The schedule was enabled again before its time.
        let mut early = record();
        early.disable(DisabledBy::Person);
        early.enable(at(5).into());
        assert_eq!((passed(&early), early.is_finished(&once, at(20))), (None, false));
        // Its `start_at` has not passed.
        let mut late_start = once.clone();
        late_start.timing.start_at = Some(at(60));
        let mut record = record();
        record.disable(DisabledBy::Person);
        record.enable(at(20).into());
        assert_eq!(record.passed_while_off(&late_start), None);
        // A delay that has fired.
        record.record_outcome(&Occurrence::Delay(at(10)).key(1), at(60));
        record.leave(at(70));
        record.reload(&late_start, at(80));
        assert_eq!((record.is_done(), record.passed_while_off(&late_start)), (true, None));
    }

    #[test]
    fn due_times_while_disabled_in_the_config_are_not_made_up() {
        let on = schedule(r#"{"type":"cron","expression":"@hourly"}"#);
        let off = Schedule { enabled: false, ..on.clone() };
        let mut record = ScheduleRecord::new(&agent(), &on, at(0));
        record.record_outcome(&Occurrence::Cron(at(10)).key(0), at(10));
        assert!(record.reload(&off, at(20)) && !record.reload(&off, at(30)), "the absence is recorded once");
        assert_eq!((record.absent_since, record.armed_at), (Some(at(20)), at(0)));
        assert!(record.reload(&on, at(40)) && !record.reload(&on, at(50)), "the return is recorded once");
        assert_eq!((record.absent_since, record.armed_at, record.generation), (None, at(40), 0));
        assert!(record.leave(at(60)) && !record.leave(at(70)), "the removal is recorded once");
        assert!(record.reload(&on, at(80)));
        assert_eq!((record.absent_since, record.armed_at), (None, at(80)));
        assert_eq!(
            ScheduleRecord::new(&agent(), &off, at(90)).absent_since,
            Some(at(90)),
            "disabled from the start"
        );
    }

    #[test]
    fn a_delay_that_a_person_disabled_after_its_firing_stays_off_with_a_new_time() {
        let delay = |wait: &str| schedule(&format!(r#"{{"type":"delay","in":"{wait}"}}"#));
        let fired = || {
            let mut record = ScheduleRecord::new(&"coder".parse().unwrap(), &delay("5s"), at(0));
            record.record_outcome(&Occurrence::Delay(at(5)).key(0), at(5));
            assert!(record.is_done());
            record
        };
        let mut off = fired();
        assert!(off.disable(DisabledBy::Person) && !off.disable(DisabledBy::Person));
        assert!(off.is_done(), "it has fired still");
        let mut on_again = off.clone();
        assert!(off.reload(&delay("7s"), at(10)));
        assert_eq!((off.is_done(), off.is_disabled_by_person()), (false, true));
        assert!(off.enable(at(11).into()));
        assert_eq!(off.state, ScheduleState::Active);
        assert!(on_again.enable(at(9).into()) && !on_again.enable(at(9).into()));
        assert!(on_again.is_done(), "enabling does not fire it again");
        assert!(on_again.reload(&delay("7s"), at(10)));
        assert_eq!(on_again.state, ScheduleState::Active);
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

    #[test]
    fn a_reload_tries_a_trigger_again_that_stopped_because_of_an_error() {
        let issues = schedule(r#"{"type":"github_issues","owner":"o","repo":"r"}"#);
        let mut record = ScheduleRecord::new(&agent(), &issues, at(0));
        assert!(record.fail("it seems to be renamed"));
        assert!(!record.reload(&issues, at(1)), "a person has to decide");
        record.state = ScheduleState::Active;
        assert!(record.fail("no token") && record.record_trigger_error(Some("no token".into()), at(2)));
        assert!(record.reload(&issues, at(3)));
        assert_eq!((record.state.clone(), record.armed_at), (ScheduleState::Active, at(3)));
        assert!(!record.reload(&issues, at(4)));
    }
}

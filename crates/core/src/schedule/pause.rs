//! Pauses of a schedule: which jobs its breaker judges, and how a pause begins and ends.

use jiff::Timestamp;

use super::{ScheduleRecord, ScheduleState};
use crate::breaker::{Breaker, BreakerState, JudgedJob, Pause};
use crate::moment::Moment;
use crate::trigger::FiringKey;

impl ScheduleRecord {
    /// Passes the result of a job that its trigger fired to the breaker. `began_at` is the start of the job, and `ended`
    /// its end. Returns the pause if one has begun. A job that began before the end of the last pause is not judged.
    pub fn judge(
        &mut self,
        breaker: &Breaker,
        job: JudgedJob<'_>,
        began_at: Option<Timestamp>,
        ended: Moment,
    ) -> Option<Pause> {
        if self.is_paused() || began_at.is_some_and(|at| !self.began_after_pause(at)) {
            return None;
        }
        let before = self.breaker_state.clone();
        let pause = breaker.judge(&mut self.breaker_state, job, ended.wall)?;
        if self.pause(pause.clone(), ended) {
            return Some(pause);
        }
        // A schedule that has finished or has an error does not pause, so its number of pauses does not grow.
        self.breaker_state = before;
        None
    }

    /// Checks whether a job that began at this time began after the last pause, or the schedule needs no probe.
    pub(crate) fn began_after_pause(&self, began_at: Timestamp) -> bool {
        self.breaker_state.pauses == 0 || began_at >= self.armed_at
    }

    /// Pauses the schedule for its breaker, and returns whether a pause has begun. A schedule that a person disabled
    /// stays disabled, and the jobs that it has accepted wait for the end of the pause.
    pub(crate) fn pause(&mut self, pause: Pause, now: Moment) -> bool {
        let on = self.state == ScheduleState::Active;
        let begins = on || self.is_disabled_by_person();
        if begins {
            self.pause_boot = now.boot.map(|boot| boot.plus(pause.until.duration_since(now.wall)));
        }
        if on {
            self.state = ScheduleState::Paused { reason: pause.reason, until: pause.until };
            self.waiting = None;
        } else if self.is_disabled_by_person() {
            self.pause_while_disabled = Some(pause.until);
        }
        begins
    }

    /// Returns the end of its pause on the wall clock as it is set now; none if it is not paused. A schedule that a
    /// person disabled during a pause is still paused.
    pub fn pause_ends(&self, now: Moment) -> Option<Timestamp> {
        let until = match self.state {
            ScheduleState::Paused { until, .. } => until,
            _ => self.pause_while_disabled.filter(|_| self.is_disabled_by_person())?,
        };
        Some(Moment { wall: until, boot: self.pause_boot }.on_clock_of(now))
    }

    /// Ends the pause if its time has passed, and returns whether it has ended now; the next job is the probe. Due
    /// times during the pause do not fire. A schedule that a person disabled stays disabled.
    pub fn resume(&mut self, now: Moment) -> bool {
        let over = self.pause_ends(now).is_some_and(|ends| ends <= now.wall);
        if over {
            if !self.is_disabled_by_person() {
                self.state = ScheduleState::Active;
            }
            self.count_due_times_from(now.wall);
            self.pause_while_disabled = None;
        }
        over
    }

    /// Checks whether a firing has to wait for the end of the pause. A firing from outside is not dropped because of a
    /// pause: it is prepared afterwards. Firings by the clock do not wait: due times during a pause do not fire.
    /// Firings by hand do not wait: they run during the pause.
    pub fn holds_back(&self, key: &FiringKey) -> bool {
        self.is_paused() && !key.is_by_clock() && !key.is_by_hand()
    }

    /// Checks whether it is in a pause, also if a person disabled it during the pause.
    const fn is_paused(&self) -> bool {
        matches!(self.state, ScheduleState::Paused { .. }) || self.is_paused_while_disabled()
    }

    /// Checks whether a person disabled it during a pause that has not ended.
    pub const fn is_paused_while_disabled(&self) -> bool {
        self.is_disabled_by_person() && self.pause_while_disabled.is_some()
    }

    /// Resets the breaker state, and ends a pause, because a job by hand succeeded, or because the breaker was
    /// turned off. Returns whether the schedule was paused, also if a person disabled it during the pause.
    pub fn reset_breaker(&mut self, now: Timestamp) -> bool {
        let was_paused_while_disabled = self.is_paused_while_disabled();
        (self.breaker_state, self.pause_while_disabled) = (BreakerState::default(), None);
        let paused = matches!(self.state, ScheduleState::Paused { .. });
        if paused {
            self.state = ScheduleState::Active;
            self.count_due_times_from(now);
        }
        paused || was_paused_while_disabled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interval::Interval;
    use crate::job::{ErrorKind, FailReason, JobError, Outcome};
    use crate::moment::BootTime;
    use crate::roster::Schedule;
    use crate::schedule::DisabledBy;
    use crate::trigger::TriggerConfig;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_705_654_800 + second).unwrap()
    }

    fn record() -> ScheduleRecord {
        let agent = "coder".parse().unwrap();
        let schedule = Schedule::new(&agent, "nightly".parse().unwrap(), TriggerConfig::Manual {});
        ScheduleRecord::new(&agent, &schedule, at(0))
    }

    const BREAKER: Breaker = Breaker {
        failures: 1,
        pause: Interval::seconds(60),
        empty_runs: 0,
        empty_usd: 0.0,
        empty_within: Interval::seconds(3_600),
    };

    /// Ends a job that failed or completed. Returns the length of the pause that begins, in seconds.
    fn end(schedule: &mut ScheduleRecord, fails: bool, began: i64, ended: i64) -> Option<i64> {
        let error = JobError { kind: ErrorKind::Exit, message: "no such file".into() };
        let failed = Outcome::Failed { reason: FailReason::Error, error, summary: None };
        let outcome = if fails { failed } else { Outcome::Completed { summary: None } };
        let job = JudgedJob { outcome: &outcome, empty: false, microdollars: 0 };
        let pause = schedule.judge(&BREAKER, job, Some(at(began)), at(ended).into())?;
        Some(pause.until.duration_since(at(ended)).as_secs())
    }

    #[test]
    fn jobs_that_began_before_the_pause_are_not_judged() {
        for disabled in [false, true] {
            let mut schedule = record();
            assert_eq!(end(&mut schedule, true, 1, 10), Some(60));
            if disabled {
                assert!(schedule.disable(DisabledBy::Person));
            }
            let paused = schedule.clone();
            for (fails, when) in [(true, "a failure"), (false, "a success")] {
                assert_eq!(end(&mut schedule, fails, 2, 20), None);
                assert_eq!(schedule, paused, "{when} during the pause changes nothing");
            }
            assert!(schedule.resume(at(70).into()));
            let resumed = schedule.clone();
            for (fails, when) in [(true, "a failure"), (false, "a success")] {
                assert_eq!(end(&mut schedule, fails, 3, 80), None);
                assert_eq!(schedule, resumed, "{when} after the pause changes nothing");
            }
            assert_eq!(end(&mut schedule, true, 70, 90), Some(120), "the probe fails");
            assert_eq!(
                schedule.breaker_state.reason.as_deref(),
                Some("2 jobs in a row failed the same way: no such file (exit)")
            );
            assert!(schedule.resume(at(210).into()));
            assert_eq!(end(&mut schedule, false, 211, 220), None);
            assert_eq!(schedule.breaker_state, BreakerState::default(), "the probe completes");
        }
    }

    #[test]
    fn a_pause_that_does_not_begin_does_not_count() {
        let mut schedule = record();
        assert!(schedule.finish());
        assert_eq!(end(&mut schedule, true, 1, 10), None);
        assert_eq!(schedule.breaker_state.pauses, 0);
        assert!(schedule.reopen(at(20)));
        assert_eq!(end(&mut schedule, true, 21, 30), Some(60));
    }

    #[test]
    fn a_pause_is_counted_on_the_boot_clock() {
        let boot = |second: i64| Some(BootTime::new(uuid::Uuid::from_u128(1), second * 1_000_000));
        let moment = |wall, second| Moment { wall: at(wall), boot: boot(second) };
        let mut schedule = record();
        let pause = Pause { until: at(60), reason: "it failed".into() };
        assert!(schedule.pause(pause, moment(0, 500)));
        assert!(!schedule.resume(moment(7_200, 510)), "the wall clock was set forward");
        assert_eq!(schedule.pause_ends(moment(-600, 510)), Some(at(-550)), "the wall clock was set back");
        assert!(schedule.resume(moment(-540, 560)));
    }
}

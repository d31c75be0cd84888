//! The rules for one schedule that the clock fires: which of its due times run.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::{Action, FiringPlaces, Hold, LiveWork, Snapshot};
use crate::budget::OverBudget;
use crate::cron::Cron;
use crate::interval::Interval;
use crate::policy::{Jitter, MAX_MISFIRES, Misfire, Overlap};
use crate::roster::Schedule;
use crate::schedule::{FiringOutcome, ScheduleRecord, SkipReason};
use crate::trigger::{ClockTrigger, FiringKey, Occurrence, TriggerConfig, TriggerKind};

/// Input of the decision about one schedule.
pub(super) struct DueCheck<'a> {
    pub(super) now: Timestamp,
    pub(super) schedule: &'a Schedule,
    pub(super) record: &'a ScheduleRecord,
    pub(super) live: &'a LiveWork<'a>,
    /// Budget that has no room for the next firing.
    pub(super) over: Option<OverBudget>,
    /// True if other schedules have the same interval.
    pub(super) shares_interval: bool,
    pub(super) snapshot: &'a Snapshot,
}

#[derive(Default)]
pub(super) struct DueResult {
    pub(super) actions: Vec<Action>,
    pub(super) wake_at: Option<Timestamp>,
}

impl DueCheck<'_> {
    pub(super) fn verdict(&self, places: &mut FiringPlaces) -> DueResult {
        let TriggerKind::Clock(trigger) = self.schedule.trigger.kind() else { return DueResult::default() };
        match trigger {
            ClockTrigger::Interval(interval) => self.interval(interval, places),
            ClockTrigger::Cron(expression) => self.cron(expression, places),
            ClockTrigger::Delay => {
                self.record.run_at.map_or_else(DueResult::default, |at| self.delay(at, places))
            }
        }
    }

    pub(super) fn interval_due(&self, interval: Interval) -> Timestamp {
        let key = self.interval_key();
        let jitter = self.schedule.timing.jitter.unwrap_or(if self.shares_interval {
            AUTOMATIC_JITTER
        } else {
            Jitter::NONE
        });
        let position = Jitter::position(&self.schedule.id.to_string(), key.as_str());
        // The wait is at most one interval and its jitter, even if the clock was set back.
        let from = self.interval_from().map(|from| from.min(self.now));
        interval.next_due(from, jitter, position, self.record.armed_at.min(self.now))
    }

    /// Returns the time from which the interval counts: usually the end of the schedule's last job, or, with a work
    /// source, its last poll if that is later. The time is on the wall clock as it is set now.
    fn interval_from(&self) -> Option<Timestamp> {
        let now = self.snapshot.moment(self.now);
        let polled_at = self.polled_at().filter(|_| self.live.takes_work);
        self.record.interval_from.map(|from| from.on_clock_of(now)).max(polled_at)
    }

    fn polled_at(&self) -> Option<Timestamp> {
        self.record.polled_at.map(|at| at.on_clock_of(self.snapshot.moment(self.now)))
    }

    /// Returns the `end_at` of the schedule if it is in the future and the clock fires the schedule.
    pub(super) fn ends(&self) -> Option<Timestamp> {
        let end = self.schedule.timing.end_at.filter(|end| *end > self.now)?;
        self.schedule.is_over(end).then_some(end)
    }

    fn interval_key(&self) -> FiringKey {
        Occurrence::Interval(self.record.interval_count + 1).key(self.record.generation)
    }

    /// Checks whether the last firing has not ended yet, so that the next firing has to wait. With a work source, only
    /// the poll itself has to end, so that free places are filled while jobs run for a long time. After a pause, the
    /// probe has to end too.
    pub(super) fn is_under_way(&self) -> bool {
        if self.live.takes_work {
            self.live.preparing
                || (self.record.breaker_state.pauses > 0
                    && self.snapshot.begun_probe(self.schedule, self.record).is_some())
        } else {
            self.live.by_trigger()
        }
    }

    /// Decides about an interval. An interval counts from the end of the last job that it fired, and is not due before
    /// that job has ended. With a work source, it counts from the last poll if that is later, and does not wait for the
    /// end of a job.
    fn interval(&self, interval: Interval, places: &mut FiringPlaces) -> DueResult {
        if self.is_under_way() {
            return DueResult::default();
        }
        let (key, mut due) = (self.interval_key(), self.interval_due(interval));
        // Each job that ends moves `due`, so jobs that end one after another could postpone the regular poll for ever.
        // If an interval has passed since the last regular poll, the next poll is a regular poll and not a fill,
        // because a fill leaves out items that a job has just released.
        let poll_due = self.polled_at().and_then(|at| at.checked_add(interval.duration()).ok());
        if self.wants_fill(places) && poll_due.is_some_and(|at| at <= self.now) {
            due = due.min(self.now);
        }
        due = self.schedule.timing.start_at.map_or(due, |start| due.max(start));
        // A due time that waits when `end_at` passes still fires, as that of a cron schedule does.
        let opens = match self.record.waiting {
            Some(_) => self.opens(due),
            None => self.schedule.timing.next_allowed(due.max(self.now), self.zone()),
        };
        let Some(opens) = opens else { return DueResult::default() };
        if due > self.now {
            let mut verdict = DueResult::wake(opens);
            self.fill(places, &mut verdict);
            return verdict;
        }
        let mut verdict = DueResult::default();
        if opens > self.now {
            verdict.wait(self, due, Hold::OutsideHours { opens });
            verdict.wake_at = Some(opens);
        } else if let Some(over) = self.over.filter(|over| self.may_wait_for(over)) {
            verdict.wait(self, due, Hold::OverBudget(over));
            verdict.wake_at = over.until;
        } else if self.over.is_some() {
            verdict.fire(self, key, due, FiringOutcome::Skipped(SkipReason::OverBudget));
        } else if let Some(hold) = self.hold(places) {
            verdict.wait(self, due, hold);
        } else {
            self.make_room(&mut verdict);
            verdict.fire(self, key, due, FiringOutcome::Ran);
            places.take(self.live);
        }
        verdict
    }

    /// Checks whether a due interval may wait for a budget. After `end_at`, it waits only for running jobs, and not for
    /// the next day or month of the budget.
    fn may_wait_for(&self, over: &OverBudget) -> bool {
        over.fits_after_running() || !self.schedule.is_over(self.now)
    }

    /// Checks whether the schedule may look for work now although it is not due.
    fn wants_fill(&self, places: &FiringPlaces) -> bool {
        let is_open = || self.schedule.timing.next_allowed(self.now, self.zone()) == Some(self.now);
        self.live.takes_work
            && self.record.fill
            && !self.is_under_way()
            && self.over.is_none()
            && places.full(self.live).is_none()
            && is_open()
    }

    fn fill(&self, places: &mut FiringPlaces, verdict: &mut DueResult) {
        if self.wants_fill(places) {
            let key = Occurrence::Fill(self.record.fill_count + 1).key(self.record.generation);
            verdict.fire(self, key, self.now, FiringOutcome::Ran);
            places.take(self.live);
        }
    }

    fn delay(&self, run_at: Timestamp, places: &mut FiringPlaces) -> DueResult {
        let due = self.schedule.delay_due(run_at);
        let Some(opens) = self.delay_opens(due) else { return DueResult::default() };
        if due > self.now {
            return DueResult::wake(due);
        }
        let mut verdict = DueResult::default();
        if opens > self.now {
            verdict.wait(self, due, Hold::OutsideHours { opens });
            verdict.wake_at = Some(opens);
            return verdict;
        }
        // Without a work source, the job is created at once and waits for a place itself.
        if self.live.takes_work
            && let Some(full) = places.full(self.live)
        {
            verdict.wait(self, due, full);
            return verdict;
        }
        verdict.fire(self, Occurrence::Delay(run_at).key(self.record.generation), due, FiringOutcome::Ran);
        places.take(self.live);
        verdict
    }

    /// Returns the time, now or later, at which the calendar lets the delay fire; none if there is no such time, or if
    /// the delay's own time passed while the schedule was not active.
    pub(super) fn delay_opens(&self, due: Timestamp) -> Option<Timestamp> {
        if self.record.passed_while_off(self.schedule).is_some() {
            return None;
        }
        self.opens(due)
    }

    /// Returns the time, now or later, at which the calendar lets a firing fire that is due at `due`; none if there is
    /// no such time. A firing that was allowed before `end_at`, but did not fire, fires now.
    pub(super) fn opens(&self, due: Timestamp) -> Option<Timestamp> {
        let timing = &self.schedule.timing;
        let from = |at: Timestamp| timing.next_allowed(at, self.zone());
        from(due.max(self.now)).or_else(|| {
            from(due.max(self.record.armed_at)).filter(|opened| *opened <= self.now).map(|_| self.now)
        })
    }

    /// Returns the time up to which the due times of the schedule are decided or do not count.
    pub(super) fn decided_until(&self) -> Timestamp {
        let armed_at = self.record.armed_at;
        self.record.last_due.map_or(armed_at, |last| last.max(armed_at))
    }

    fn cron(&self, cron: &Cron, places: &mut FiringPlaces) -> DueResult {
        let since = self.decided_until();
        let mut verdict = DueResult::default();
        for (due, outcome) in self.misfires(self.overdue(cron, since)) {
            let replayed = self.record.replay_until.is_some_and(|until| due <= until);
            let outcome = match outcome {
                // The clock was set back and shows this due time again. Most such due times already have a row in the
                // ledger and do not run again, so no job has to make room for them.
                FiringOutcome::Ran if replayed => Some(outcome),
                FiringOutcome::Ran => self.overlap_outcome(due, places, &mut verdict),
                decided => Some(decided),
            };
            // A firing that waits stops the loop. Later due times are decided after it has fired.
            let Some(outcome) = outcome else { return verdict };
            verdict.fire(self, Occurrence::Cron(due).key(self.record.generation), due, outcome);
        }
        verdict.wake_at = self.next_wake(cron, since);
        if !verdict.fires() {
            self.fill(places, &mut verdict);
        }
        verdict
    }

    /// Returns the due times in (since, now] and between `start_at` and `end_at`, oldest first. With jitter, a due time
    /// whose firing time is in the future is left out. Returns at most the newest [`MAX_MISFIRES`], because no policy
    /// runs more.
    pub(super) fn overdue(&self, cron: &Cron, since: Timestamp) -> Vec<Timestamp> {
        let timing = &self.schedule.timing;
        let just_after = self.now.checked_add(SignedDuration::from_nanos(1)).unwrap_or(self.now);
        let before = timing.end_at.map_or(just_after, |end| end.min(just_after));
        let backwards = std::iter::successors(cron.previous_before(before, self.zone()), |due| {
            cron.previous_before(*due, self.zone())
        });
        let mut due: Vec<Timestamp> = backwards
            .take_while(|due| *due > since && timing.start_at.is_none_or(|start| *due >= start))
            .filter(|due| self.spread(cron, *due) <= self.now)
            .take(MAX_MISFIRES)
            .collect();
        due.reverse();
        due
    }

    fn next_wake(&self, cron: &Cron, since: Timestamp) -> Option<Timestamp> {
        let timing = &self.schedule.timing;
        let just_before = |at: Timestamp| at.checked_sub(SignedDuration::from_nanos(1)).unwrap_or(at);
        let after = self.now.max(since).max(timing.start_at.map_or(Timestamp::MIN, just_before));
        let next = cron.next_after(after, self.zone())?;
        let within = |at: &Timestamp| {
            timing.start_at.is_none_or(|start| *at >= start) && timing.end_at.is_none_or(|end| *at < end)
        };
        // With jitter, the firing of the last due time may also still be in the future.
        let last = cron.previous_before(next, self.zone()).filter(|last| *last > since).filter(within);
        let last = last.map(|last| self.spread(cron, last)).filter(|last| *last > self.now);
        last.or_else(|| Some(next).filter(within).map(|next| self.spread(cron, next)))
    }

    /// Returns the firing time of a due time. Cron times are exact unless jitter is set; then the shift is a share of
    /// the time to the next due time.
    pub(super) fn spread(&self, cron: &Cron, due: Timestamp) -> Timestamp {
        let Some(jitter) = self.schedule.timing.jitter else { return due };
        let Some(next) = cron.next_after(due, self.zone()) else { return due };
        let key = Occurrence::Cron(due).key(self.record.generation);
        let position = Jitter::position(&self.schedule.id.to_string(), key.as_str());
        due.checked_add(jitter.share_of(next.duration_since(due), position)).unwrap_or(due)
    }

    /// Decides the outcomes of due times by the calendar and the misfire policy, oldest first.
    pub(super) fn misfires(&self, overdue: Vec<Timestamp>) -> Vec<(Timestamp, FiringOutcome)> {
        let timing = &self.schedule.timing;
        let newest = overdue.iter().copied().rfind(|due| timing.allows(*due, self.zone()));
        let outcome = |due: Timestamp| {
            let too_late = timing.latest().is_some_and(|latest| self.late(due) > latest);
            if !timing.allows(due, self.zone()) {
                FiringOutcome::Skipped(SkipReason::OutsideHours)
            } else if self.missed(due) && (too_late || timing.misfire == Misfire::Skip) {
                FiringOutcome::Missed
            } else if timing.misfire != Misfire::RunAll && Some(due) < newest {
                FiringOutcome::Coalesced
            } else {
                FiringOutcome::Ran
            }
        };
        overdue.into_iter().map(|due| (due, outcome(due))).collect()
    }

    fn late(&self, due: Timestamp) -> SignedDuration {
        self.now.duration_since(due)
    }

    /// Checks whether no daemon could fire at this due time. A due time that had to wait, or that is late because the
    /// machine was busy, was not missed.
    pub(super) fn missed(&self, due: Timestamp) -> bool {
        let held_back = self.record.waiting.as_ref().is_some_and(|waiting| due >= waiting.due);
        !held_back && !self.snapshot.uptime.covers(due, self.snapshot.moment(self.now))
    }

    /// Decides the outcome of a firing that should run, from the live jobs, the budget and the places; none if it has
    /// to wait.
    fn overlap_outcome(
        &self,
        due: Timestamp,
        places: &mut FiringPlaces,
        verdict: &mut DueResult,
    ) -> Option<FiringOutcome> {
        // `run_all` runs each missed firing. These firings queue, so that `overlap` does not skip or cancel some of
        // them.
        let queues = self.missed(due) && self.schedule.timing.misfire == Misfire::RunAll;
        let is_under_way = match self.schedule.timing.overlap {
            _ if self.live.takes_work => self.is_under_way(),
            Overlap::Skip => !self.live.is_empty(),
            Overlap::Queue | Overlap::CancelPrevious | Overlap::Allow => false,
        };
        if !queues && is_under_way {
            return Some(FiringOutcome::Skipped(SkipReason::AlreadyRunning));
        }
        // Check the budget before the places: a firing without budget waits for budget or is skipped, whether or not a
        // place is free.
        let queues = queues || self.schedule.timing.overlap == Overlap::Queue && !self.live.takes_work;
        match self.over {
            // Running attempts have reserved the amount that this firing needs. The firing runs if the attempts leave
            // enough. Under `overlap: queue`, its job waits for the attempts.
            Some(over) if over.fits_after_running() && queues => {}
            Some(over) if over.fits_after_running() => {
                verdict.wait(self, due, Hold::OverBudget(over));
                verdict.wake_at = over.until;
                return None;
            }
            Some(_) => return Some(FiringOutcome::Skipped(SkipReason::OverBudget)),
            None => {}
        }
        if !queues {
            if let Some(hold) = self.hold(places) {
                verdict.wait(self, due, hold);
                return None;
            }
            self.make_room(verdict);
        }
        places.take(self.live);
        Some(FiringOutcome::Ran)
    }

    /// Returns the overlap policy for the next firing. An interval counts from the end of the job that it fired, so
    /// only a job that was started by hand can still be live when the interval is due. Without such a job, the interval
    /// fires as with `skip`.
    fn overlap(&self) -> Overlap {
        let is_interval = matches!(self.schedule.trigger, TriggerConfig::Interval { .. });
        if is_interval && self.live.is_empty() { Overlap::Skip } else { self.schedule.timing.overlap }
    }

    /// Returns the reason why the next firing has to wait, if there is one. With a work source, only a missing
    /// place is a reason. Without a work source, there is no reason under `overlap: queue`, and none under
    /// `overlap: cancel_previous` while a job is live.
    fn hold(&self, places: &FiringPlaces) -> Option<Hold> {
        match self.overlap() {
            // Each job has its own item, so the jobs do not exclude each other.
            _ if self.live.takes_work => places.full(self.live),
            Overlap::Queue => None,
            Overlap::CancelPrevious if !self.live.is_empty() => None,
            Overlap::Skip if !self.live.is_empty() => Some(Hold::AlreadyRunning),
            Overlap::Skip | Overlap::CancelPrevious | Overlap::Allow => places.full(self.live),
        }
    }

    pub(super) fn zone(&self) -> &TimeZone {
        self.schedule.zone.time_zone()
    }

    fn make_room(&self, verdict: &mut DueResult) {
        let cancels = self.schedule.timing.overlap == Overlap::CancelPrevious && !self.live.takes_work;
        if cancels && !verdict.fires() {
            verdict
                .actions
                .extend(self.live.jobs.iter().map(|job| Action::CancelPrevious { job: job.id.clone() }));
        }
    }
}

/// Jitter of equal intervals without a configured jitter.
const AUTOMATIC_JITTER: Jitter = Jitter::ONE;

impl DueResult {
    fn wake(at: Timestamp) -> Self {
        Self { actions: Vec::new(), wake_at: Some(at) }
    }

    fn fires(&self) -> bool {
        self.actions.iter().any(|action| matches!(action, Action::Fire { outcome: FiringOutcome::Ran, .. }))
    }

    fn fire(&mut self, check: &DueCheck<'_>, key: FiringKey, due: Timestamp, outcome: FiringOutcome) {
        let is_cron = matches!(check.schedule.trigger, TriggerConfig::Cron { .. });
        let by_misfire = is_cron && !key.is_fill() && outcome == FiringOutcome::Ran && check.missed(due);
        let waited = check.record.waiting.as_ref().map(|waiting| waiting.reason);
        let after_hours = !is_cron && !key.is_fill() && waited == Some(SkipReason::OutsideHours);
        let schedule = check.schedule.id;
        self.actions.push(Action::Fire { schedule, key, due, outcome, by_misfire, after_hours });
    }

    /// Adds the wait, unless the record already has a wait with this reason.
    fn wait(&mut self, check: &DueCheck<'_>, due: Timestamp, hold: Hold) {
        let known = check.record.waiting.as_ref().is_some_and(|waiting| waiting.reason == hold.reason());
        // A row that is written before this action may clear the stored wait.
        if !known || !self.actions.is_empty() {
            self.actions.push(Action::Wait { schedule: check.schedule.id, due, hold });
        }
    }
}

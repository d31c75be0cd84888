//! The next firings of each schedule, as far as the clock decides them. All code that shows a next firing uses
//! [`Outlook`], so that the same time is shown everywhere.

use std::borrow::Cow;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::{LiveState, LiveWork, Snapshot, due};
use crate::cron::Cron;
use crate::interval::Interval;
use crate::policy::Overlap;
use crate::roster::{Agent, Roster, Schedule};
use crate::schedule::{ScheduleRecord, ScheduleState, SkipReason};
use crate::trigger::{ClockTrigger, TriggerConfig, TriggerKind};

/// Maximum number of due times that the search tries in a row without a result. This limit ends the search for an
/// expression whose due times the calendar never allows.
pub(super) const MAX_TRIED: usize = 2_000;

/// State of a fleet at one moment, from which the next firings are computed.
#[derive(Debug)]
pub struct Outlook<'a> {
    now: Timestamp,
    roster: &'a Roster,
    snapshot: &'a Snapshot,
}

impl<'a> Outlook<'a> {
    /// Creates an outlook. `snapshot` has to contain the spending ledger if the fleet has budgets
    /// (`Store::snapshot_of`).
    pub fn new(now: Timestamp, roster: &'a Roster, snapshot: &'a Snapshot) -> Self {
        Self { now, roster, snapshot }
    }

    /// Returns the next firing of the schedule, which is never in the past. None if the schedule is not active, if its
    /// calendar allows no further firing, or if the clock does not fire it. Also none for an interval if the job from
    /// whose end it counts has not ended, or if the interval waits for something with an unknown end.
    pub fn next(&self, agent: &Agent, schedule: &Schedule) -> Option<Timestamp> {
        self.firings(agent, schedule, self.now, 1).pop()
    }

    /// Returns the same as [`Self::firings`], also for a `from` in the past. Then the times of a cron schedule between
    /// `from` and now come first, as its expression and calendar define them. The ledger has their outcomes.
    pub fn times(&self, agent: &Agent, schedule: &Schedule, from: Timestamp, count: usize) -> Vec<Timestamp> {
        let mut times = self.search(agent, schedule, |search| search.past_times(from, count));
        times.extend(self.firings(agent, schedule, from, count - times.len()));
        times
    }

    /// Returns at most `count` firings of the schedule from `from` on, none in the past. A firing of a cron schedule at
    /// `from` itself is left out. An interval counts from the end of each run, so its times are exact only if the runs
    /// take no time.
    pub fn firings(
        &self,
        agent: &Agent,
        schedule: &Schedule,
        from: Timestamp,
        count: usize,
    ) -> Vec<Timestamp> {
        if count == 0 {
            return Vec::new();
        }
        let from = from.max(self.now);
        let TriggerKind::Clock(trigger) = schedule.trigger.kind() else { return Vec::new() };
        self.search(agent, schedule, |search| match trigger {
            ClockTrigger::Cron(expression) => search.cron(expression, from, count),
            ClockTrigger::Interval(interval) => search.interval(interval, from, count),
            ClockTrigger::Delay => search.delay(from),
        })
    }

    pub(super) fn search<R: Default>(
        &self,
        agent: &Agent,
        schedule: &Schedule,
        find: impl FnOnce(Search<'_>) -> R,
    ) -> R {
        let record = self
            .snapshot
            .schedules
            .get(&schedule.id)
            .map_or_else(|| Cow::Owned(ScheduleRecord::new(&agent.name, schedule, self.now)), Cow::Borrowed);
        if !schedule.enabled || record.state != ScheduleState::Active {
            return R::default();
        }
        let live = LiveWork::of(agent, schedule, self.snapshot);
        let shares_interval = self.roster.shares_interval(schedule);
        let check = due::DueCheck {
            now: self.now,
            schedule,
            record: &record,
            live: &live,
            over: self.roster.over_budget(agent, &self.snapshot.ledger, self.now),
            shares_interval,
            snapshot: self.snapshot,
        };
        find(Search { outlook: self, agent, check })
    }
}

/// The search for the firings of one schedule.
pub(super) struct Search<'a> {
    outlook: &'a Outlook<'a>,
    agent: &'a Agent,
    pub(super) check: due::DueCheck<'a>,
}

/// Effect of a provider that is used up, or whose reserve is reached, on firings: firings before `until` create jobs that wait for the provider.
struct Park {
    until: Timestamp,
    /// True if a job of the schedule already waits for the provider.
    has_job: bool,
}

impl Search<'_> {
    /// Returns the first `count` times of a cron schedule after `from`, up to now.
    fn past_times(&self, from: Timestamp, count: usize) -> Vec<Timestamp> {
        let TriggerConfig::Cron { expression: cron, .. } = &self.check.schedule.trigger else {
            return Vec::new();
        };
        let (timing, zone, now) = (&self.check.schedule.timing, self.check.zone(), self.check.now);
        // With jitter, the firing of a due time before `from` may be after `from`.
        let before = cron.previous_before(just_after(from), zone);
        let (mut after, mut found, mut tried) = (before.map_or(from, just_before), Vec::new(), 0);
        while from < now && found.len() < count && tried < MAX_TRIED {
            let Some(due) = cron.next_after(after, zone).filter(|due| *due <= now) else { break };
            (after, tried) = (due, tried + 1);
            if !timing.allows(due, zone) {
                let Some(allowed) = timing.next_allowed(due, zone) else { break };
                after = just_before(allowed).max(due);
                continue;
            }
            let at = self.check.spread(cron, due);
            if at > from && at <= now {
                found.push(at);
                tried = 0;
            }
        }
        found
    }

    /// Returns the firings of a cron schedule. `from` is not before now, here and in the following functions.
    fn cron(&self, cron: &Cron, from: Timestamp, count: usize) -> Vec<Timestamp> {
        let (timing, zone) = (&self.check.schedule.timing, self.check.zone());
        let Ok(mut opens) = self.budget_opens() else { return Vec::new() };
        // While the provider is used up, the first firing creates a job that waits for the provider, and
        // `overlap: skip` skips the later firings. With a work source, no firing is skipped: each of them looks for
        // work.
        let skips = timing.overlap == Overlap::Skip && !self.check.live.takes_work;
        let park = self.park().filter(|_| skips);
        if let Some(park) = park.as_ref().filter(|park| park.has_job) {
            opens = opens.max(park.until);
        }
        let mut after = self.after(cron, if park.is_some() { self.check.now } else { from });
        let (mut found, mut tried) = (Vec::new(), 0);
        while found.len() < count && tried < MAX_TRIED {
            let Some(due) = cron.next_after(after, zone) else { break };
            tried += 1;
            if due < opens {
                after = just_before(opens);
                continue;
            }
            if !timing.allows(due, zone) {
                let Some(allowed) = timing.next_allowed(due, zone) else { break };
                after = just_before(allowed).max(due);
                continue;
            }
            let at = self.check.spread(cron, due);
            if at > from {
                found.push(at);
                tried = 0;
            }
            let parked = park.as_ref().map(|park| just_before(park.until)).filter(|_| at > self.check.now);
            after = parked.map_or(due, |parked| parked.max(due));
        }
        found
    }

    /// Returns the start of the search. With jitter, the firing of the last due time may still be in the future.
    fn after(&self, cron: &Cron, start: Timestamp) -> Timestamp {
        let decided = self.check.decided_until();
        let last = cron.previous_before(just_after(start), self.check.zone());
        last.filter(|last| *last > decided).map_or_else(|| decided.max(start), just_before)
    }

    fn interval(&self, interval: Interval, from: Timestamp, count: usize) -> Vec<Timestamp> {
        let (timing, zone) = (&self.check.schedule.timing, self.check.zone());
        let Some(mut at) = self.interval_start(interval) else { return Vec::new() };
        let step = interval.duration();
        let mut parked = self.park().filter(|_| !self.check.live.takes_work).map(|park| park.until);
        let mut found = Vec::new();
        while let Some(allowed) = timing.next_allowed(at, zone) {
            if allowed >= from {
                found.push(allowed);
            }
            if found.len() == count {
                break;
            }
            // A job that waits for its provider does not end before this wait ends.
            let end = parked.take().map_or(allowed, |until| until.max(allowed));
            let Ok(next) = end.checked_add(step) else { break };
            at = next.max(last_before(from, next, step));
        }
        found
    }

    /// Returns the first time, now or later, at which the interval is due and has budget. None if this time is not
    /// known.
    fn interval_start(&self, interval: Interval) -> Option<Timestamp> {
        let waits = self.check.record.waiting.as_ref().map(|waiting| waiting.reason);
        let ends_by_itself = matches!(waits, None | Some(SkipReason::OutsideHours | SkipReason::OverBudget));
        if self.check.is_under_way() || !ends_by_itself {
            return None;
        }
        let due = self.check.interval_due(interval);
        match self.check.over {
            // Only reservations of running jobs prevent the firing, and nobody knows when these jobs end.
            Some(over) if over.fits_after_running() && due <= self.check.now => None,
            Some(over) if !over.fits_after_running() => Some(due.max(over.until?)),
            Some(_) | None => Some(due.max(self.check.now)),
        }
    }

    fn delay(&self, from: Timestamp) -> Vec<Timestamp> {
        let run_at = self.check.record.run_at;
        let at = run_at.and_then(|run_at| self.check.delay_opens(self.check.schedule.delay_due(run_at)));
        at.into_iter().filter(|at| *at >= from).collect()
    }

    /// Returns the time from which firings have budget; earlier firings are skipped. Returns an error if the budget is
    /// never renewed.
    fn budget_opens(&self) -> Result<Timestamp, ()> {
        match self.check.over.filter(|over| !over.fits_after_running()) {
            Some(over) => over.until.ok_or(()),
            None => Ok(self.check.now),
        }
    }

    fn park(&self) -> Option<Park> {
        let (snapshot, now) = (self.outlook.snapshot, self.check.now);
        let pending =
            self.check.live.jobs.iter().filter(|job| matches!(job.state, LiveState::Pending { .. }));
        let (agent, roster) = (self.agent, self.outlook.roster);
        let mut waits = pending.filter_map(|job| snapshot.provider_hold(roster, agent, job, now));
        if let Some(hold) = waits.next() {
            return Some(Park { until: hold.until(), has_job: true });
        }
        let hold = snapshot.provider_hold_of_new(roster, agent, self.check.schedule, now)?;
        Some(Park { until: hold.until(), has_job: false })
    }
}

/// Returns the time that is a whole number of steps after `at` and one to two steps before `from`, so that the search
/// for a distant time does not need many steps. Returns `at` if it is later.
fn last_before(from: Timestamp, at: Timestamp, step: SignedDuration) -> Timestamp {
    let steps = from.duration_since(at).as_secs() / step.as_secs().max(1) - 1;
    let Ok(steps @ 1..) = i32::try_from(steps) else { return at };
    step.checked_mul(steps).and_then(|away| at.checked_add(away).ok()).unwrap_or(at)
}

pub(super) fn just_before(at: Timestamp) -> Timestamp {
    at.checked_sub(SignedDuration::from_nanos(1)).unwrap_or(at)
}

fn just_after(at: Timestamp) -> Timestamp {
    at.checked_add(SignedDuration::from_nanos(1)).unwrap_or(at)
}

/// Returns all times of an expression after `from`.
pub fn times(cron: &Cron, zone: &TimeZone, from: Timestamp) -> impl Iterator<Item = Timestamp> {
    std::iter::successors(cron.next_after(from, zone), |at| cron.next_after(*at, zone))
}

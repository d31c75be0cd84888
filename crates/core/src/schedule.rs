//! The record of a schedule: its state, its progress, and the outcomes of its firings.

use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::breaker::BreakerState;
use crate::id::{AgentName, ScheduleId, ScheduleName};
use crate::moment::{BootTime, MIN_CLOCK_STEP, Moment};
use crate::trigger::{FiringKey, TriggerConfig};
use crate::word::written_as;

mod pause;

/// State of a schedule in the store. Its config is in [`crate::roster::Schedule`].
#[derive(Debug, Clone, PartialEq)]
pub struct ScheduleRecord {
    pub id: ScheduleId,
    pub agent: AgentName,
    pub name: ScheduleName,
    pub state: ScheduleState,
    /// Trigger as it was last loaded.
    pub trigger: TriggerConfig,
    /// Due time of a `delay`. `in` counts from the time at which the schedule was first loaded with this trigger.
    pub run_at: Option<Timestamp>,
    /// Number that grows when the schedule is re-armed. It is part of the firing keys, so that new keys differ from old
    /// keys.
    pub generation: u32,
    /// Time from which due times count; earlier due times do not fire.
    pub armed_at: Timestamp,
    /// Number of `interval` firings so far.
    pub interval_count: u64,
    /// Due time of its last firing by the clock, whatever the outcome. For a `delay` that was not active at its due
    /// time: the same time as `armed_at`.
    pub last_due: Option<Timestamp>,
    /// Last due time that was decided before the wall clock was set back. The ledger already has a row for most due
    /// times up to this one.
    pub replay_until: Option<Timestamp>,
    /// End of the last job that it fired, or the last time that it found no work.
    pub last_run_at: Option<Timestamp>,
    /// Time from which an interval counts: `last_run_at`, or a later time at which the schedule was enabled or a firing
    /// ended without a run. None before the end of the first firing.
    pub interval_from: Option<Moment>,
    /// Error that prevents it from firing now, else `run_error`.
    pub last_error: Option<String>,
    /// Failure of its trigger, until the trigger answers again.
    pub trigger_error: Option<TriggerFailure>,
    /// With a work source: time of the last poll at a due time.
    pub polled_at: Option<Moment>,
    /// With a work source: true if the schedule polls again as soon as its agent has a free place.
    pub fill: bool,
    /// Number of fills so far.
    pub fill_count: u64,
    /// Error of the last failed run; kept until a run succeeds.
    pub run_error: Option<String>,
    /// A due firing that has to wait, and the reason.
    pub waiting: Option<WaitingFiring>,
    /// Results of its last jobs, for its breaker.
    pub breaker_state: BreakerState,
    /// For a schedule that a person disabled: the end of its pause; none if it has no pause or the pause has ended.
    /// Jobs that the schedule accepted from outside wait until then.
    pub pause_while_disabled: Option<Timestamp>,
    /// End of a pause, as a reading of the boot clock.
    pub pause_boot: Option<BootTime>,
    /// Time since which the config has it with `enabled: false` or not at all; none while the config has it enabled.
    pub absent_since: Option<Timestamp>,
}

/// The failure of a trigger, for example of each poll of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TriggerFailure {
    /// Error of the last call of the trigger.
    pub message: String,
    /// Time of the first error since the last answer of the trigger.
    pub since: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum ScheduleState {
    Active,
    /// Disabled by a person, or because it is done.
    Disabled {
        why: DisabledBy,
    },
    /// Its trigger cannot continue.
    Error {
        reason: String,
    },
    /// Paused temporarily by its breaker.
    Paused {
        reason: String,
        until: Timestamp,
    },
    /// Its `end_at` has passed, and nothing is due any more. Or it is a delay whose time passed while it was off.
    Finished,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DisabledBy {
    Person,
    /// The schedule is a delay that has fired; a delay fires once.
    Done,
}

/// A due time and the reason why it waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingFiring {
    /// First due time since the last firing. A later firing may cover it.
    pub due: Timestamp,
    pub reason: SkipReason,
}

/// Reason why a schedule did not fire, as data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    UnsupportedType,
    Disabled,
    AlreadyRunning,
    AtCapacity,
    NotDue,
    Duplicate,
    Filtered,
    NoWork,
    OutsideHours,
    OverBudget,
    Paused,
    /// An earlier job uses the session that the new job would continue.
    SessionBusy,
    /// Its provider is used up for now.
    UsageLimit,
    /// Its provider has reached its reserve, so automatic jobs wait.
    ReserveReached,
    /// A job of the schedule could not be started, and is tried again.
    Requeued,
    /// Somebody cancelled the firing before it had a job.
    Cancelled,
    /// The schedule, or its agent, is not in the config any more. Only a waiting job has this reason.
    Removed,
    /// No node of the fleet runs jobs of the agent. Only a waiting job has this reason.
    NoNode,
}

/// Outcome of one planned firing; the ledger has a row for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FiringOutcome {
    /// Its jobs are not created yet: a work source is polled, a command decides whether it runs, or the trust in its
    /// authors is checked.
    Preparing,
    /// It created a job.
    Ran,
    Skipped(SkipReason),
    /// Its time passed while no daemon could fire it, and the misfire policy dropped it.
    Missed,
    /// A later firing covers it.
    Coalesced,
}

written_as! {
    DisabledBy { Person = "person", Done = "done" }
    SkipReason {
        UnsupportedType = "unsupported_type", Disabled = "disabled", AlreadyRunning = "already_running",
        AtCapacity = "at_capacity", NotDue = "not_due", Duplicate = "duplicate", Filtered = "filtered",
        NoWork = "no_work", OutsideHours = "outside_hours", OverBudget = "over_budget", Paused = "paused",
        SessionBusy = "session_busy", UsageLimit = "usage_limit", ReserveReached = "reserve_reached",
        Requeued = "requeued", Cancelled = "cancelled", Removed = "removed",
        NoNode = "no_node",
    }
}

impl SkipReason {
    /// Checks whether the job of a firing waits for its provider.
    pub const fn is_about_provider(self) -> bool {
        matches!(self, Self::UsageLimit | Self::ReserveReached)
    }
}

impl FiringOutcome {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Preparing => "preparing",
            Self::Ran => "ran",
            Self::Skipped(_) => "skipped",
            Self::Missed => "missed",
            Self::Coalesced => "coalesced",
        }
    }

    pub const fn skip_reason(self) -> Option<SkipReason> {
        match self {
            Self::Skipped(reason) => Some(reason),
            Self::Preparing | Self::Ran | Self::Missed | Self::Coalesced => None,
        }
    }
}

impl ScheduleRecord {
    /// Imports the state that herdctl recorded for the schedule. The misfire policy decides about due times since its
    /// last run.
    pub fn import(&mut self, disabled: bool, last_run_at: Option<Timestamp>, last_error: Option<String>) {
        if disabled {
            self.state = ScheduleState::Disabled { why: DisabledBy::Person };
        }
        if let Some(at) = last_run_at {
            self.last_run_at = Some(at);
            self.interval_from = Some(at.into());
            self.last_due = Some(at);
            self.armed_at = self.armed_at.min(at);
        }
        self.run_error.clone_from(&last_error);
        self.last_error = last_error;
    }

    /// Checks whether it is a delay that has fired, even if a person disabled it after that. A delay fires once.
    pub fn is_done(&self) -> bool {
        match self.state {
            ScheduleState::Disabled { why: DisabledBy::Done } => true,
            ScheduleState::Disabled { why: DisabledBy::Person } => self.has_fired_once(),
            _ => false,
        }
    }

    /// Checks whether it is a delay that has fired at its present time.
    fn has_fired_once(&self) -> bool {
        let decided = self.last_due.filter(|last| *last != self.armed_at);
        self.is_delay() && self.run_at.is_some_and(|at| decided.is_some_and(|last| last >= at))
    }

    pub(crate) const fn is_delay(&self) -> bool {
        matches!(self.trigger, TriggerConfig::Delay { .. })
    }

    /// Makes due times count from now, because the schedule is active again: earlier due times do not fire.
    pub(crate) fn count_due_times_from(&mut self, now: Timestamp) {
        let has_fired =
            self.state == ScheduleState::Disabled { why: DisabledBy::Done } || self.has_fired_once();
        if self.is_delay() && !has_fired {
            self.last_due = Some(now);
        }
        self.armed_at = now;
    }

    /// Enables the schedule, unless it is active or finished. A delay that has fired does not fire again until it gets
    /// a new time, which arms it. Returns whether the record has changed. Due times that passed while the schedule was
    /// disabled do not fire: an interval that has run before is due one interval later. A trigger with an error starts
    /// again, even if the schedule is active. For an active schedule that waits for a probe, resets the breaker.
    pub fn enable(&mut self, now: Moment) -> bool {
        let is_failing = self.clear_trigger_error();
        match self.state {
            // The delay does not fire again at its old time. It no longer counts as disabled by a person, so a new time
            // arms it.
            ScheduleState::Disabled { why: DisabledBy::Person } if self.is_done() => {
                self.state = ScheduleState::Disabled { why: DisabledBy::Done };
                true
            }
            _ if self.is_done() => false,
            // The pause has ended, but no probe has completed yet. Now no probe is needed any more.
            ScheduleState::Active if self.breaker_state.pauses > 0 => {
                self.breaker_state = BreakerState::default();
                true
            }
            // A strategy that follows events holds no credentials, and would lose the events until now if it were armed
            // again.
            ScheduleState::Active if is_failing && !self.trigger.follows_events() => {
                self.armed_at = now.wall;
                true
            }
            ScheduleState::Active | ScheduleState::Finished => false,
            ScheduleState::Disabled { .. } | ScheduleState::Error { .. } | ScheduleState::Paused { .. } => {
                self.state = ScheduleState::Active;
                self.generation += 1;
                self.count_due_times_from(now.wall);
                self.interval_from = self.interval_from.map(|_| now);
                // Places that became free while the schedule was not active are filled at its next due time.
                (self.polled_at, self.fill) = (self.polled_at.map(|_| now), false);
                (self.breaker_state, self.pause_while_disabled) = (BreakerState::default(), None);
                true
            }
        }
    }

    /// Disables the schedule, and returns whether its state has changed. Running jobs continue. A due firing no longer
    /// waits, and the error of the trigger is forgotten. The rest of the record is kept, including the end of a pause.
    /// If the schedule is a delay that has fired and a person disables it, a new time does not arm it.
    pub fn disable(&mut self, why: DisabledBy) -> bool {
        let off = ScheduleState::Disabled { why };
        let changed = self.state != off;
        if let ScheduleState::Paused { until, .. } = self.state {
            self.pause_while_disabled = Some(until);
        }
        self.state = off;
        self.waiting = None;
        self.clear_trigger_error();
        changed
    }

    /// Records that its trigger cannot continue. Does nothing and returns false if the schedule is not active.
    pub fn fail(&mut self, reason: &str) -> bool {
        let on = self.state == ScheduleState::Active;
        if on {
            self.state = ScheduleState::Error { reason: reason.to_owned() };
            self.waiting = None;
        }
        on
    }

    /// Records an error of its trigger, or with `None` that the trigger has answered. Returns whether the record has
    /// changed.
    pub fn record_trigger_error(&mut self, error: Option<String>, now: Timestamp) -> bool {
        let Some(message) = error else { return self.clear_trigger_error() };
        let before = self.trigger_error.clone();
        let since = before.as_ref().map_or(now, |before| before.since);
        let error = TriggerFailure { message, since };
        if before.as_ref() == Some(&error) {
            return false;
        }
        if before.is_none_or(|before| self.last_error.as_ref() == Some(&before.message)) {
            self.record_error(Some(error.message.clone()));
        }
        self.trigger_error = Some(error);
        true
    }

    /// Forgets the error of its trigger, and returns whether there was one. A later error of a run or of a preparation
    /// stays in `last_error`.
    pub(crate) fn clear_trigger_error(&mut self) -> bool {
        let Some(before) = self.trigger_error.take() else { return false };
        if self.last_error.as_ref() == Some(&before.message) {
            self.record_error(None);
        }
        true
    }

    /// Makes the trigger try again after an error that stopped the schedule. Returns whether such an error had stopped
    /// it.
    pub(crate) fn retry_trigger(&mut self, now: Timestamp) -> bool {
        let is_stopped = matches!(self.state, ScheduleState::Error { .. }) && self.trigger_error.is_some();
        if is_stopped {
            self.state = ScheduleState::Active;
            self.count_due_times_from(now);
        }
        is_stopped
    }

    /// Checks whether it accepts no occurrence now, because it is disabled, has finished or has an error. During a
    /// pause, it accepts occurrences from outside.
    pub const fn is_off(&self) -> bool {
        match self.state {
            ScheduleState::Active | ScheduleState::Paused { .. } => false,
            ScheduleState::Disabled { .. } | ScheduleState::Error { .. } | ScheduleState::Finished => true,
        }
    }

    pub const fn is_disabled_by_person(&self) -> bool {
        matches!(self.state, ScheduleState::Disabled { why: DisabledBy::Person })
    }

    /// Finishes the schedule because nothing of it is due any more. Does nothing and returns false if the schedule is
    /// not active.
    pub fn finish(&mut self) -> bool {
        let on = self.state == ScheduleState::Active;
        if on {
            self.state = ScheduleState::Finished;
            self.waiting = None;
        }
        on
    }

    /// Reopens the schedule, because the config has moved its `end_at` into the future or removed it. Due times while
    /// it was finished do not fire. Does nothing and returns false if the schedule is not finished.
    pub fn reopen(&mut self, now: Timestamp) -> bool {
        let finished = self.state == ScheduleState::Finished;
        if finished {
            self.state = ScheduleState::Active;
            self.count_due_times_from(now);
        }
        finished
    }

    /// Checks whether recorded times are in the future, because the wall clock was set back.
    pub fn is_ahead_of(&self, now: Moment) -> bool {
        let ahead = |at: Timestamp| at.duration_since(now.wall) > CLOCK_TOLERANCE;
        ahead(self.armed_at) || self.last_due.is_some_and(ahead) || self.counts_ahead_of(now)
    }

    fn counts_ahead_of(&self, now: Moment) -> bool {
        let ahead = |from: Moment| {
            now.by_boot_clock(from).is_none() && from.wall.duration_since(now.wall) >= MIN_CLOCK_STEP
        };
        self.interval_from.is_some_and(ahead) || self.polled_at.is_some_and(ahead)
    }

    /// Continues from the present if [`Self::is_ahead_of`] shows that the clock was set back, and returns whether it
    /// was set back.
    pub fn restart_from_now(&mut self, now: Moment) -> bool {
        let ahead = self.is_ahead_of(now);
        if ahead {
            self.armed_at = self.armed_at.min(now.wall);
            self.replay_until = self.replay_until.max(self.last_due);
            self.last_due = self.last_due.map(|due| due.min(now.wall));
            if self.counts_ahead_of(now) {
                self.interval_from = self.interval_from.map(|_| now);
                self.polled_at = self.polled_at.map(|_| now);
            }
        }
        ahead
    }

    /// Returns the error that prevents the schedule from firing now; none if `last_error` is the error of its last run.
    pub fn firing_error(&self) -> Option<&str> {
        self.last_error.as_deref().filter(|_| self.last_error != self.run_error)
    }

    /// Records that a later firing covers a due time. The start of a wait does not change.
    pub fn record_coalesced(&mut self, due: Timestamp) {
        self.last_due = Some(self.last_due.map_or(due, |last| last.max(due)));
    }

    /// Records that a firing by the clock has an outcome.
    pub fn record_outcome(&mut self, key: &FiringKey, due: Timestamp) {
        if key.is_fill() {
            (self.fill, self.fill_count) = (false, self.fill_count + 1);
            return;
        }
        self.last_due = Some(self.last_due.map_or(due, |last| last.max(due)));
        self.waiting = None;
        match key.kind() {
            "interval" => self.interval_count += 1,
            "delay" => self.state = ScheduleState::Disabled { why: DisabledBy::Done },
            _ => {}
        }
    }

    /// Records that the schedule polls for work now because it is due. This poll replaces a requested fill.
    pub fn record_poll(&mut self, now: Moment) {
        (self.polled_at, self.fill) = (Some(now), false);
    }

    /// Records the end of a run, or of a poll that found no work: the interval counts from that time.
    pub fn record_run_or_poll(&mut self, at: Moment) {
        if self
            .interval_from
            .is_some_and(|from| at.by_boot_clock(from).is_some_and(|after| after.is_negative()))
        {
            // This run ended before the time from which the interval already counts, but its end was noticed later.
            self.last_run_at = self.last_run_at.max(Some(at.wall));
            return;
        }
        self.last_run_at = Some(at.wall);
        self.interval_from = Some(at);
    }

    /// Records that a firing ended at this moment without a poll and without a run. Only `interval_from` changes.
    pub fn count_from(&mut self, at: Moment) {
        self.interval_from = Some(at);
    }

    /// Records that a job that it fired succeeded.
    pub fn record_success(&mut self, at: Moment) {
        self.record_run_or_poll(at);
        (self.last_error, self.run_error) = (None, None);
    }

    /// Records that a job that it fired failed.
    pub fn record_failure(&mut self, at: Moment, error: String) {
        self.record_run_or_poll(at);
        (self.last_error, self.run_error) = (Some(error.clone()), Some(error));
    }

    /// Records an error that prevents the schedule from firing, or the end of such an error. Returns whether
    /// `last_error` has changed.
    pub fn record_error(&mut self, trouble: Option<String>) -> bool {
        let before = std::mem::replace(&mut self.last_error, trouble.or_else(|| self.run_error.clone()));
        before != self.last_error
    }
}

/// Tolerance for differences between the clocks of nodes. Only a time further ahead means that a clock was set back.
const CLOCK_TOLERANCE: SignedDuration = SignedDuration::from_mins(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roster::Schedule;
    use crate::trigger::Occurrence;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_705_654_800 + second).unwrap()
    }

    fn record() -> ScheduleRecord {
        let agent: AgentName = "coder".parse().unwrap();
        let schedule = Schedule::new(&agent, "nightly".parse().unwrap(), TriggerConfig::Manual {});
        ScheduleRecord::new(&agent, &schedule, at(0))
    }

    #[test]
    fn re_enabling_keeps_history_and_makes_up_no_firings() {
        let mut schedule = record();
        schedule.record_outcome(&Occurrence::Cron(at(10)).key(0), at(10));
        schedule.record_failure(at(20).into(), "boom".into());
        assert!(!schedule.enable(at(25).into()), "it is already active");
        assert!(schedule.disable(DisabledBy::Person));
        assert!(!schedule.disable(DisabledBy::Person), "it is already disabled");
        assert_eq!((schedule.last_run_at, schedule.last_error.as_deref()), (Some(at(20)), Some("boom")));
        assert!(schedule.enable(at(100).into()));
        assert_eq!((schedule.armed_at, schedule.generation), (at(100), 1));
        assert_eq!(schedule.last_run_at, Some(at(20)));
        assert_eq!(schedule.interval_from, Some(at(100).into()), "an interval is due one interval later");
        let mut new = record();
        new.disable(DisabledBy::Person);
        assert!(new.enable(at(100).into()));
        assert_eq!(new.interval_from, None, "an interval that has never run is due at once");
    }

    #[test]
    fn the_first_five_skip_reasons_are_the_documented_ones() {
        let words: Vec<&str> = SkipReason::ALL.iter().map(|reason| reason.as_str()).collect();
        let documented = ["unsupported_type", "disabled", "already_running", "at_capacity", "not_due"];
        assert_eq!(words[..5], documented);
        for reason in SkipReason::ALL {
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.as_str());
            assert_eq!(reason.as_str().parse::<SkipReason>().unwrap(), *reason);
        }
    }

    #[test]
    fn last_error_stays_until_a_run_succeeds() {
        let mut schedule = record();
        schedule.record_failure(at(1).into(), "boom".into());
        schedule.record_run_or_poll(at(2).into());
        assert_eq!((schedule.last_error.as_deref(), schedule.last_run_at), (Some("boom"), Some(at(2))));
        schedule.record_failure(at(3).into(), "bang".into());
        assert_eq!(schedule.last_error.as_deref(), Some("bang"));
        assert!(schedule.record_error(Some("away".into())) && !schedule.record_error(Some("away".into())));
        assert_eq!(schedule.last_error.as_deref(), Some("away"));
        assert!(schedule.record_error(None));
        assert_eq!(schedule.last_error.as_deref(), Some("bang"));
        schedule.record_success(at(4).into());
        assert_eq!(schedule.last_error, None);
        assert!(schedule.record_error(Some("away".into())) && schedule.record_error(None));
        assert_eq!(schedule.last_error, None);
    }

    #[test]
    fn an_error_of_the_trigger_has_the_time_of_the_first_one() {
        let mut schedule = record();
        schedule.record_failure(at(1).into(), "boom".into());
        let error = |message: &str| Some(TriggerFailure { message: message.to_owned(), since: at(2) });
        assert!(schedule.record_trigger_error(Some("401".into()), at(2)));
        assert!(!schedule.record_trigger_error(Some("401".into()), at(3)));
        assert_eq!((&schedule.trigger_error, schedule.last_error.as_deref()), (&error("401"), Some("401")));
        assert!(schedule.record_trigger_error(Some("502".into()), at(4)));
        assert_eq!((&schedule.trigger_error, schedule.last_error.as_deref()), (&error("502"), Some("502")));
        schedule.record_success(at(5).into());
        assert_eq!((&schedule.trigger_error, &schedule.last_error), (&error("502"), &None), "it fails still");
        assert!(schedule.record_trigger_error(None, at(6)) && !schedule.record_trigger_error(None, at(7)));
        assert_eq!((&schedule.trigger_error, &schedule.last_error), (&None, &None));
        assert!(!schedule.enable(at(8).into()), "nothing to do");
        assert!(schedule.record_trigger_error(Some("401".into()), at(9)));
        assert!(schedule.enable(at(10).into()), "it tries again");
        let ScheduleRecord { trigger_error, last_error, armed_at, generation, .. } = schedule;
        assert_eq!((trigger_error, last_error, armed_at, generation), (None, None, at(10), 0));
    }

    #[test]
    fn the_last_due_time_never_moves_back() {
        let mut schedule = record();
        schedule.record_outcome(&Occurrence::Cron(at(10)).key(0), at(10));
        schedule.record_outcome(&Occurrence::Cron(at(5)).key(0), at(5));
        assert_eq!(schedule.last_due, Some(at(10)));
    }

    #[test]
    fn a_schedule_recounts_after_the_clock_is_set_back() {
        let boot = |second: i64| Some(BootTime::new(uuid::Uuid::from_u128(1), second * 1_000_000));
        let moment = |wall, second| Moment { wall: at(wall), boot: boot(second) };
        let mut schedule = record();
        schedule.record_success(moment(1_000, 500));
        assert!(!schedule.is_ahead_of(moment(400, 510)), "ten seconds ago by the boot clock");
        assert!(schedule.is_ahead_of(at(400).into()), "without a boot clock, the wall clock counts");
        assert!(schedule.restart_from_now(at(400).into()));
        assert_eq!(schedule.interval_from, Some(at(400).into()));
        assert!(!schedule.restart_from_now(at(401).into()), "it has restarted already");
        schedule.last_due = Some(at(900));
        assert!(!schedule.is_ahead_of(at(850).into()), "the clocks of two nodes may differ by 50 seconds");
        assert!(schedule.restart_from_now(at(600).into()));
        assert_eq!((schedule.last_due, schedule.armed_at), (Some(at(600)), at(0)));
        assert_eq!(schedule.replay_until, Some(at(900)));
    }

    #[test]
    fn a_schedule_is_finished_once_and_reopened_by_a_later_end() {
        let mut schedule = record();
        assert!(schedule.finish());
        assert!(!schedule.finish() && !schedule.enable(at(5).into()));
        assert!(schedule.reopen(at(9)));
        assert_eq!((schedule.state.clone(), schedule.armed_at), (ScheduleState::Active, at(9)));
        schedule.disable(DisabledBy::Person);
        assert!(!schedule.finish(), "what a person disabled stays disabled");
    }

    #[test]
    fn a_fill_moves_no_due_time() {
        let mut schedule = record();
        schedule.record_outcome(&Occurrence::Cron(at(10)).key(0), at(10));
        schedule.waiting = Some(WaitingFiring { due: at(20), reason: SkipReason::OverBudget });
        schedule.fill = true;
        schedule.record_outcome(&Occurrence::Fill(1).key(0), at(15));
        assert_eq!((schedule.last_due, schedule.fill, schedule.fill_count), (Some(at(10)), false, 1));
        assert!(schedule.waiting.is_some());
    }

    #[test]
    fn only_interval_firings_are_counted() {
        let mut schedule = record();
        schedule.record_outcome(&Occurrence::Interval(1).key(0), at(1));
        schedule.record_outcome(&Occurrence::Cron(at(2)).key(0), at(2));
        assert_eq!(schedule.interval_count, 1);
    }
}

//! Schedules as they live: on or off, how far they have come, and what became of each firing.

use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::breaker::{BreakerState, Pause};
use crate::id::{AgentName, ScheduleId, ScheduleName};
use crate::moment::{BootTime, Moment, SMALLEST};
use crate::trigger::{FiringKey, TriggerConfig};
use crate::word::written_as;

/// What the store knows of a schedule; what it is meant to do stands in [`crate::roster::Schedule`].
#[derive(Debug, Clone, PartialEq)]
pub struct ScheduleRecord {
    pub id: ScheduleId,
    pub agent: AgentName,
    pub name: ScheduleName,
    pub state: ScheduleState,
    /// As it was last loaded.
    pub trigger: TriggerConfig,
    /// When a `delay` is due: `in` is counted from when it was first loaded.
    pub run_at: Option<Timestamp>,
    /// Grows when the schedule is re-armed, so that old keys can be used again.
    pub generation: u32,
    /// Since when it watches the clock: firings due before this are nobody's.
    pub armed_at: Timestamp,
    /// How many `interval` firings it has had.
    pub interval_count: u64,
    /// The due time of its last firing by the clock, whatever became of it.
    pub last_due: Option<Timestamp>,
    /// The latest due time before the clock was set back: most of those up to here have their row already.
    pub replay_until: Option<Timestamp>,
    /// When the last job that it fired ended, or when it last found no work.
    pub last_run_at: Option<Timestamp>,
    /// What an interval counts from: `last_run_at`, or when it was enabled after that. None if it never ran.
    pub counted_from: Option<Moment>,
    /// What keeps it from firing at the moment, else `run_error`.
    pub last_error: Option<String>,
    /// With a work source: when it last looked for work because it was due.
    pub polled_at: Option<Moment>,
    /// With a work source: it looks again as soon as its agent has a free place.
    pub fill: bool,
    /// How many times it has done that.
    pub fill_count: u64,
    /// Of the last run that failed; it stays until one succeeds.
    pub run_error: Option<String>,
    /// A due firing that could not be made yet, and why.
    pub waiting: Option<Waiting>,
    /// What its last jobs came to, for its breaker.
    pub fuse: BreakerState,
    /// The end of a pause on the boot clock.
    pub pause_boot: Option<BootTime>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum ScheduleState {
    Active,
    /// By a person, or because it is done.
    Disabled {
        why: DisabledBy,
    },
    /// A trigger that cannot go on.
    Error {
        reason: String,
    },
    /// By its breaker, and not for ever.
    Paused {
        reason: String,
        until: Timestamp,
    },
    /// Its `end_at` has passed, and nothing of it is due any more.
    Finished,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DisabledBy {
    Person,
    /// A delay fires once.
    Done,
}

/// Due since, and held back by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// The first due time since it last fired. Later ones may stand for it.
    pub due: Timestamp,
    pub reason: SkipReason,
}

/// Why a schedule did not fire: data, not prose.
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
    /// An earlier job has the session that it would go on with.
    SessionBusy,
    /// Its provider is used up for now.
    UsageLimit,
    /// A job of it could not be started, and is tried again.
    Requeued,
}

/// What became of one planned firing; the ledger has a row for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FiringOutcome {
    /// Its jobs are not made yet: the work source is asked, or a command whether to run at all.
    Preparing,
    /// It made a job.
    Ran,
    Skipped(SkipReason),
    /// Its time passed while nobody could fire it, and the policy let it go.
    Missed,
    /// A later firing ran for it.
    Coalesced,
}

written_as! {
    DisabledBy { Person = "person", Done = "done" }
    SkipReason {
        UnsupportedType = "unsupported_type", Disabled = "disabled", AlreadyRunning = "already_running",
        AtCapacity = "at_capacity", NotDue = "not_due", Duplicate = "duplicate", Filtered = "filtered",
        NoWork = "no_work", OutsideHours = "outside_hours", OverBudget = "over_budget", Paused = "paused",
        SessionBusy = "session_busy", UsageLimit = "usage_limit",
        Requeued = "requeued",
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
    /// Takes over how far another program came with it. What fell due since its last run counts as missed.
    pub fn import(&mut self, disabled: bool, last_run_at: Option<Timestamp>, last_error: Option<String>) {
        if disabled {
            self.state = ScheduleState::Disabled { why: DisabledBy::Person };
        }
        if let Some(at) = last_run_at {
            self.last_run_at = Some(at);
            self.counted_from = Some(at.into());
            self.last_due = Some(at);
            self.armed_at = self.armed_at.min(at);
        }
        self.run_error.clone_from(&last_error);
        self.last_error = last_error;
    }

    /// Whether it is a delay that has fired, also if a person turned it off after that. It fires once.
    pub fn is_done(&self) -> bool {
        let is_delay = matches!(self.trigger, TriggerConfig::Delay { .. });
        let fired = is_delay && self.run_at.is_some_and(|at| self.last_due.is_some_and(|last| last >= at));
        match self.state {
            ScheduleState::Disabled { why: DisabledBy::Done } => true,
            ScheduleState::Disabled { why: DisabledBy::Person } => fired,
            _ => false,
        }
    }

    /// Does nothing to one that is on or finished already, or to a delay that has fired. What fell due while it was off is
    /// not made up: an interval that has run before is due one interval later. A trigger that gave up starts anew.
    pub fn enable(&mut self, now: Moment) -> bool {
        match self.state {
            _ if self.is_done() => false,
            ScheduleState::Active | ScheduleState::Finished => false,
            ScheduleState::Disabled { .. } | ScheduleState::Error { .. } | ScheduleState::Paused { .. } => {
                self.state = ScheduleState::Active;
                self.generation += 1;
                self.armed_at = now.wall;
                self.counted_from = self.counted_from.map(|_| now);
                self.fuse = BreakerState::default();
                true
            }
        }
    }

    /// Running jobs are not disturbed, and everything else the record says is kept.
    pub fn disable(&mut self, why: DisabledBy) -> bool {
        if self.is_done() {
            return false;
        }
        let off = ScheduleState::Disabled { why };
        let changed = self.state != off;
        self.state = off;
        self.waiting = None;
        changed
    }

    /// Its trigger cannot go on; only one that is on can give up.
    pub fn give_up(&mut self, reason: &str) -> bool {
        let on = self.state == ScheduleState::Active;
        if on {
            self.state = ScheduleState::Error { reason: reason.to_owned() };
            self.waiting = None;
        }
        on
    }

    /// Its breaker says so; only one that is on can pause.
    pub fn pause(&mut self, pause: Pause, now: Moment) -> bool {
        let on = self.state == ScheduleState::Active;
        if on {
            self.pause_boot = now.boot.map(|boot| boot.plus(pause.until.duration_since(now.wall)));
            self.state = ScheduleState::Paused { reason: pause.reason, until: pause.until };
            self.waiting = None;
        }
        on
    }

    /// Returns the end of its pause on the wall clock as it is set now; none if it has not paused itself.
    pub fn pause_ends(&self, now: Moment) -> Option<Timestamp> {
        let ScheduleState::Paused { until, .. } = self.state else { return None };
        Some(Moment { wall: until, boot: self.pause_boot }.on_clock_of(now))
    }

    /// Its pause is over: what it fires next is the probe. What fell due meanwhile is not made up.
    pub fn resume(&mut self, now: Moment) -> bool {
        let over = self.pause_ends(now).is_some_and(|ends| ends <= now.wall);
        if over {
            self.state = ScheduleState::Active;
            self.armed_at = now.wall;
        }
        over
    }

    /// Its `end_at` has passed; only one that is on can be finished.
    pub fn finish(&mut self) -> bool {
        let on = self.state == ScheduleState::Active;
        if on {
            self.state = ScheduleState::Finished;
            self.waiting = None;
        }
        on
    }

    /// Whether a firing has to wait for the end of its pause. A firing from outside is not dropped because of a pause: what it
    /// runs for is found out afterwards. What the clock fired is not made up.
    pub fn holds_back(&self, key: &FiringKey) -> bool {
        matches!(self.state, ScheduleState::Paused { .. }) && !key.is_by_clock() && !key.is_by_hand()
    }

    /// Its `end_at` lies ahead again. What fell due meanwhile is not made up.
    pub fn reopen(&mut self, now: Timestamp) -> bool {
        let finished = self.state == ScheduleState::Finished;
        if finished {
            self.state = ScheduleState::Active;
            self.armed_at = now;
        }
        finished
    }

    /// Whether it remembers times that the wall clock has not reached, because the clock was set back.
    pub fn is_ahead_of(&self, now: Moment) -> bool {
        let ahead = |at: Timestamp| at.duration_since(now.wall) > TOLERANCE;
        ahead(self.armed_at) || self.last_due.is_some_and(ahead) || self.counts_ahead_of(now)
    }

    fn counts_ahead_of(&self, now: Moment) -> bool {
        let ahead = |from: Moment| {
            now.by_boot_clock(from).is_none() && from.wall.duration_since(now.wall) >= SMALLEST
        };
        self.counted_from.is_some_and(ahead) || self.polled_at.is_some_and(ahead)
    }

    /// Goes on from the present where [`Self::is_ahead_of`] says that the clock was set back.
    pub fn recount(&mut self, now: Moment) -> bool {
        let ahead = self.is_ahead_of(now);
        if ahead {
            self.armed_at = self.armed_at.min(now.wall);
            self.replay_until = self.replay_until.max(self.last_due);
            self.last_due = self.last_due.map(|due| due.min(now.wall));
            if self.counts_ahead_of(now) {
                self.counted_from = self.counted_from.map(|_| now);
                self.polled_at = self.polled_at.map(|_| now);
            }
        }
        ahead
    }

    /// A person tried it, and it went well: whatever it paused for is gone.
    pub fn proved(&mut self, now: Timestamp) -> bool {
        self.fuse = BreakerState::default();
        let paused = matches!(self.state, ScheduleState::Paused { .. });
        if paused {
            self.state = ScheduleState::Active;
            self.armed_at = now;
        }
        paused
    }

    /// A later firing stands for one that was due: the clock moves on. Whatever waits has waited since before.
    pub fn coalesced(&mut self, due: Timestamp) {
        self.last_due = Some(self.last_due.map_or(due, |last| last.max(due)));
    }

    /// A firing by the clock was decided, one way or another: the clock moves on.
    pub fn passed(&mut self, key: &FiringKey, due: Timestamp) {
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

    /// Records that it looks for work now because it is due. Whatever place it leaves free is filled later.
    pub fn polls(&mut self, now: Moment) {
        (self.polled_at, self.fill) = (Some(now), false);
    }

    /// A look for work found none, or a run ended that neither succeeded nor failed: the interval counts from now.
    pub fn looked(&mut self, at: Moment) {
        self.last_run_at = Some(at.wall);
        self.counted_from = Some(at);
    }

    /// A job that it fired succeeded.
    pub fn succeeded(&mut self, at: Moment) {
        self.looked(at);
        (self.last_error, self.run_error) = (None, None);
    }

    /// A job that it fired failed.
    pub fn failed(&mut self, at: Moment, error: String) {
        self.looked(at);
        (self.last_error, self.run_error) = (Some(error.clone()), Some(error));
    }

    /// Something keeps it from firing, or that is over; says whether this is new.
    pub fn trouble(&mut self, trouble: Option<String>) -> bool {
        let before = std::mem::replace(&mut self.last_error, trouble.or_else(|| self.run_error.clone()));
        before != self.last_error
    }
}

/// The clocks of two nodes differ a little: only what lies further ahead tells of a clock that was set back.
const TOLERANCE: SignedDuration = SignedDuration::from_mins(1);

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
    fn off_and_on_again_keeps_history_and_makes_nothing_up() {
        let mut schedule = record();
        schedule.passed(&Occurrence::Cron(at(10)).key(0), at(10));
        schedule.failed(at(20).into(), "boom".into());
        assert!(!schedule.enable(at(25).into()), "it is on");
        assert!(schedule.disable(DisabledBy::Person));
        assert!(!schedule.disable(DisabledBy::Person), "it is off");
        assert_eq!((schedule.last_run_at, schedule.last_error.as_deref()), (Some(at(20)), Some("boom")));
        assert!(schedule.enable(at(100).into()));
        assert_eq!((schedule.armed_at, schedule.generation), (at(100), 1));
        assert_eq!(schedule.last_run_at, Some(at(20)));
        assert_eq!(schedule.counted_from, Some(at(100).into()), "an interval is due one interval later");
        let mut new = record();
        new.disable(DisabledBy::Person);
        assert!(new.enable(at(100).into()));
        assert_eq!(new.counted_from, None, "one that never ran is due at once");
    }

    #[test]
    fn skip_reasons_are_the_documented_five_and_ours() {
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
        schedule.failed(at(1).into(), "boom".into());
        schedule.looked(at(2).into());
        assert_eq!((schedule.last_error.as_deref(), schedule.last_run_at), (Some("boom"), Some(at(2))));
        schedule.failed(at(3).into(), "bang".into());
        assert_eq!(schedule.last_error.as_deref(), Some("bang"));
        assert!(schedule.trouble(Some("away".into())) && !schedule.trouble(Some("away".into())));
        assert_eq!(schedule.last_error.as_deref(), Some("away"));
        assert!(schedule.trouble(None));
        assert_eq!(schedule.last_error.as_deref(), Some("bang"));
        schedule.succeeded(at(4).into());
        assert_eq!(schedule.last_error, None);
        assert!(schedule.trouble(Some("away".into())) && schedule.trouble(None));
        assert_eq!(schedule.last_error, None);
    }

    #[test]
    fn due_times_never_run_back() {
        let mut schedule = record();
        schedule.passed(&Occurrence::Cron(at(10)).key(0), at(10));
        schedule.passed(&Occurrence::Cron(at(5)).key(0), at(5));
        assert_eq!(schedule.last_due, Some(at(10)));
    }

    #[test]
    fn a_clock_that_was_set_back_is_noticed_and_counted_from() {
        let boot = |second: i64| Some(BootTime::new(uuid::Uuid::from_u128(1), second * 1_000_000));
        let moment = |wall, second| Moment { wall: at(wall), boot: boot(second) };
        let mut schedule = record();
        schedule.succeeded(moment(1_000, 500));
        assert!(!schedule.is_ahead_of(moment(400, 510)), "the boot clock knows that it was ten seconds ago");
        assert!(schedule.is_ahead_of(at(400).into()), "without a boot clock nobody knows");
        assert!(schedule.recount(at(400).into()));
        assert_eq!(schedule.counted_from, Some(at(400).into()));
        assert!(!schedule.recount(at(401).into()), "once");
        schedule.last_due = Some(at(900));
        assert!(!schedule.is_ahead_of(at(850).into()), "two machines may differ by that much");
        assert!(schedule.recount(at(600).into()));
        assert_eq!((schedule.last_due, schedule.armed_at), (Some(at(600)), at(0)));
        assert_eq!(schedule.replay_until, Some(at(900)));
    }

    #[test]
    fn a_pause_is_counted_on_the_boot_clock() {
        let boot = |second: i64| Some(BootTime::new(uuid::Uuid::from_u128(1), second * 1_000_000));
        let moment = |wall, second| Moment { wall: at(wall), boot: boot(second) };
        let mut schedule = record();
        let pause = Pause { until: at(60), reason: "it failed".into() };
        assert!(schedule.pause(pause, moment(0, 500)));
        assert!(!schedule.resume(moment(7_200, 510)), "set forward");
        assert_eq!(schedule.pause_ends(moment(-600, 510)), Some(at(-550)), "set back");
        assert!(schedule.resume(moment(-540, 560)));
    }

    #[test]
    fn a_schedule_is_finished_once_and_reopened_by_a_later_end() {
        let mut schedule = record();
        assert!(schedule.finish());
        assert!(!schedule.finish() && !schedule.enable(at(5).into()));
        assert!(schedule.reopen(at(9)));
        assert_eq!((schedule.state.clone(), schedule.armed_at), (ScheduleState::Active, at(9)));
        schedule.disable(DisabledBy::Person);
        assert!(!schedule.finish(), "what a person turned off stays off");
    }

    #[test]
    fn a_fill_moves_no_due_time() {
        let mut schedule = record();
        schedule.passed(&Occurrence::Cron(at(10)).key(0), at(10));
        schedule.waiting = Some(Waiting { due: at(20), reason: SkipReason::OverBudget });
        schedule.fill = true;
        schedule.passed(&Occurrence::Fill(1).key(0), at(15));
        assert_eq!((schedule.last_due, schedule.fill, schedule.fill_count), (Some(at(10)), false, 1));
        assert!(schedule.waiting.is_some());
    }

    #[test]
    fn only_interval_firings_are_counted() {
        let mut schedule = record();
        schedule.passed(&Occurrence::Interval(1).key(0), at(1));
        schedule.passed(&Occurrence::Cron(at(2)).key(0), at(2));
        assert_eq!(schedule.interval_count, 1);
    }
}

//! Jobs that have to wait for their schedule. While a schedule is paused, new jobs that its trigger fired do not start.
//! After the pause, one of them starts first: the probe. If a person disables the schedule during its pause, or before
//! its probe has completed, jobs that the clock fired wait until the schedule is enabled; jobs for occurrences from
//! outside wait for the pause and the probe as before. Jobs whose schedule was removed from the config wait too,
//! because the restrictions of that schedule are not known any more. The job of a message waits while the daily budget of
//! its sender has no room for it.

use std::collections::HashMap;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::{LiveJob, LiveState, Preparing, Snapshot};
use crate::budget::OverBudget;
use crate::id::{AgentName, JobId, ScheduleId};
use crate::roster::{Agent, Schedule};
use crate::schedule::{DisabledBy, ScheduleRecord, ScheduleState, SkipReason};
use crate::trigger::Driver;

/// Reason why a job of a schedule may not start yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScheduleHold<'a> {
    Paused {
        reason: &'a str,
        until: Timestamp,
    },
    /// The pause is over, and the jobs wait for this job, the probe.
    Probe(&'a JobId),
    /// A person has disabled the schedule, and its pause has not ended.
    PausedWhileDisabled {
        /// None if an earlier version paused the schedule.
        reason: Option<&'a str>,
        until: Timestamp,
    },
    /// A person disabled the schedule during its pause, or before its probe had completed, and the clock fired the job.
    Off,
    /// The schedule is not in the config.
    Removed,
    /// The daily budget of the person whose message caused the job has no room for it.
    OverPersonBudget(OverBudget),
}

impl ScheduleHold<'_> {
    pub const fn reason(self) -> SkipReason {
        match self {
            Self::Paused { .. } | Self::PausedWhileDisabled { .. } | Self::Probe(_) => SkipReason::Paused,
            Self::Off => SkipReason::Disabled,
            Self::Removed => SkipReason::Removed,
            Self::OverPersonBudget(_) => SkipReason::OverBudget,
        }
    }

    pub const fn until(self) -> Option<Timestamp> {
        match self {
            Self::Paused { until, .. } | Self::PausedWhileDisabled { until, .. } => Some(until),
            Self::OverPersonBudget(over) => over.until,
            Self::Probe(_) | Self::Off | Self::Removed => None,
        }
    }

    /// Describes the reason. Times of a budget are in `zone`.
    pub fn sentence(self, agent: &AgentName, zone: &TimeZone) -> String {
        match self {
            Self::Paused { reason, .. } => format!("its schedule has paused itself: {reason}"),
            Self::Probe(job) => format!("its schedule was paused, and waits for its probe {job}"),
            Self::PausedWhileDisabled { reason, .. } => {
                let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
                format!("its schedule had paused itself before it was disabled{reason}")
            }
            Self::Off => "its schedule was disabled during its pause, or before its probe had completed".to_owned(),
            Self::Removed => {
                "its schedule is no longer in the config, so the restrictions of the job are not known; restore the \
                 schedule, name it in `adopt` of the schedule of the same agent that replaces it, or cancel the job"
                    .to_owned()
            }
            Self::OverPersonBudget(over) => over.sentence(agent, zone),
        }
    }
}

/// Reasons that prevent the jobs of an agent's schedules from starting.
#[derive(Debug)]
pub struct Holds<'a> {
    agent: &'a Agent,
    of_schedules: HashMap<ScheduleId, Option<ScheduleHold<'a>>>,
    over_person: &'a HashMap<JobId, OverBudget>,
}

impl<'a> Holds<'a> {
    pub fn of(agent: &'a Agent, snapshot: &'a Snapshot, now: Timestamp) -> Self {
        let of_schedule = |schedule: &Schedule| (schedule.id, snapshot.hold(schedule, now));
        let of_schedules = agent.schedules.iter().map(of_schedule).collect();
        Self { agent, of_schedules, over_person: &snapshot.ledger.over_person }
    }

    /// Returns the reason why a pending job may not start. During a pause, jobs that have had an attempt continue, and
    /// jobs by hand start; all other jobs of the schedule wait. A job whose schedule was removed does not start. A job for
    /// which its sender has no budget waits.
    pub fn job(&self, job: &LiveJob) -> Option<ScheduleHold<'a>> {
        let name = job.schedule_name.as_ref().filter(|_| matches!(job.state, LiveState::Pending { .. }))?;
        if self.agent.schedule(Some(name)).is_none() {
            return Some(ScheduleHold::Removed);
        }
        let held = job.schedule.and_then(|schedule| *self.of_schedules.get(&schedule)?);
        let held = held
            .filter(|held| job.by_trigger && job.began_at.is_none() && *held != ScheduleHold::Probe(&job.id));
        held.or_else(|| self.over_person.get(&job.id).copied().map(ScheduleHold::OverPersonBudget))
    }

    /// Returns the reason why the job of a firing may not start once it is created. The firing has no job yet. A firing
    /// by hand only waits if its schedule was removed.
    pub fn firing(&self, firing: &Preparing) -> Option<ScheduleHold<'a>> {
        let Some(held) = self.of_schedules.get(&firing.schedule) else { return Some(ScheduleHold::Removed) };
        held.filter(|_| !firing.key.is_by_hand())
    }
}

impl Snapshot {
    fn hold(&self, schedule: &Schedule, now: Timestamp) -> Option<ScheduleHold<'_>> {
        let record = self.schedules.get(&schedule.id)?;
        match &record.state {
            ScheduleState::Paused { reason, until } => Some(ScheduleHold::Paused { reason, until: *until }),
            ScheduleState::Active | ScheduleState::Disabled { why: DisabledBy::Person }
                if record.breaker_state.pauses == 0 =>
            {
                None
            }
            ScheduleState::Disabled { why: DisabledBy::Person }
                if schedule.trigger.driver() == Driver::Clock =>
            {
                Some(ScheduleHold::Off)
            }
            ScheduleState::Disabled { why: DisabledBy::Person } if record.is_paused_while_disabled() => {
                let reason = record.breaker_state.reason.as_deref();
                record.pause_while_disabled.map(|until| ScheduleHold::PausedWhileDisabled { reason, until })
            }
            ScheduleState::Active | ScheduleState::Disabled { why: DisabledBy::Person }
                if schedule.breaker.is_on() =>
            {
                self.probe(schedule, record, now).map(ScheduleHold::Probe)
            }
            ScheduleState::Active
            | ScheduleState::Disabled { .. }
            | ScheduleState::Error { .. }
            | ScheduleState::Finished => None,
        }
    }

    /// Returns the probe: the job that began after the pause, else the oldest ready job without an attempt.
    fn probe(&self, schedule: &Schedule, record: &ScheduleRecord, now: Timestamp) -> Option<&JobId> {
        self.begun_probe(schedule, record).or_else(|| {
            let mut waiting = self.fired_by(schedule).filter(|job| job.began_at.is_none());
            waiting.find(|job| job.is_ready(now)).map(|job| &job.id)
        })
    }

    /// Returns the job of the schedule that began after its last pause and has not ended. Jobs that began before the
    /// pause continue and are not waited for.
    pub(super) fn begun_probe(&self, schedule: &Schedule, record: &ScheduleRecord) -> Option<&JobId> {
        let mut jobs = self.fired_by(schedule);
        jobs.find(|job| job.began_at.is_some_and(|at| record.began_after_pause(at))).map(|job| &job.id)
    }

    fn fired_by(&self, schedule: &Schedule) -> impl Iterator<Item = &LiveJob> {
        let id = schedule.id;
        self.jobs.iter().filter(move |job| job.by_trigger && job.schedule == Some(id))
    }

    pub(super) fn is_held_back(&self, firing: &Preparing) -> bool {
        self.schedules.get(&firing.schedule).is_some_and(|record| record.holds_back(&firing.key))
    }
}

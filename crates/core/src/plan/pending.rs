//! Reasons why a pending job waits although its time has come.

use jiff::{SignedDuration, Timestamp};

use super::turn::PlaceTurn;
use super::{Admission, AgentPlaces, Holds, LiveJob, LiveState, SlotWait, Snapshot, StartFacts, admit};
use crate::id::ScheduleId;
use crate::provider::ProviderWait;
use crate::roster::{Agent, Roster, Schedule};
use crate::schedule::{ScheduleState, SkipReason};
use crate::trigger::Driver;

/// Reason why a pending job waits although its time has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AwaitedStart {
    /// Reason of the wait; none if only a daemon is missing.
    pub reason: Option<SkipReason>,
    /// Time at which the wait ends, if known.
    pub until: Option<Timestamp>,
    pub sentence: String,
}

/// Sentence about a job that waits only for a daemon.
const NO_DAEMON: &str = "no daemon runs; it starts when a daemon does";

impl Snapshot {
    /// Returns the reason why a pending job waits although its time has come: it needs a place of its agent, its
    /// session, a slot of its provider, or a daemon. None if the job runs, has to wait for a time, or starts at the
    /// daemon's next tick.
    pub fn awaited_start(
        &self,
        roster: &Roster,
        agent: &Agent,
        job: &LiveJob,
        now: Timestamp,
    ) -> Option<AwaitedStart> {
        if !job.is_ready(now) {
            return None;
        }
        let slot = self.slot_wait(roster, agent, job, now);
        let facts = StartFacts {
            // Callers have checked the budget and the hold already.
            over: None,
            hold: None,
            not_before: None,
            places: AgentPlaces::of_running(agent, self),
            session_busy: self.has_busy_session(agent, job),
            provider: slot.as_ref().map(|slot| slot.until.map_or(ProviderWait::Full, ProviderWait::Opens)),
        };
        let awaited = |reason, until, sentence| Some(AwaitedStart { reason, until, sentence });
        match admit(&facts, now) {
            // Without a daemon, nobody knows whether the jobs that have the places still run.
            Admission::AtCapacity if !self.has_daemon(now) => awaited(None, None, NO_DAEMON.to_owned()),
            Admission::AtCapacity => {
                let sentence = self.sentence_about_place(roster, agent, job, now);
                awaited(Some(SkipReason::AtCapacity), None, sentence)
            }
            Admission::SessionBusy => {
                let sentence = "another job has its session and has not ended".to_owned();
                awaited(Some(SkipReason::SessionBusy), None, sentence)
            }
            Admission::Provider(_) => {
                let SlotWait { until, sentence } = slot?;
                awaited(Some(SkipReason::AtCapacity), until, sentence)
            }
            Admission::Admitted | Admission::OverBudget(_) | Admission::NotBefore(_) | Admission::Held(_) => {
                if self.has_daemon(now) {
                    None
                } else {
                    awaited(None, None, NO_DAEMON.to_owned())
                }
            }
        }
    }

    /// Checks whether a daemon of the fleet runs, as far as the snapshot shows.
    pub fn has_daemon(&self, now: Timestamp) -> bool {
        let just_now = now.checked_sub(SignedDuration::from_nanos(1)).unwrap_or(now);
        self.uptime.covers(just_now, self.moment(now))
    }

    /// Returns the waiting job that gets the next free place of the agent. A firing without a job may come before it.
    pub fn next_to_start(&self, roster: &Roster, agent: &Agent, now: Timestamp) -> Option<&LiveJob> {
        self.ready_in_order(roster, agent, now).into_iter().next()
    }

    /// Returns the waiting job that starts first of all waiting jobs of a schedule.
    pub fn first_ready(
        &self,
        roster: &Roster,
        agent: &Agent,
        schedule: ScheduleId,
        now: Timestamp,
    ) -> Option<&LiveJob> {
        self.ready_in_order(roster, agent, now).into_iter().find(|job| job.schedule == Some(schedule))
    }

    /// Returns the pending jobs of an agent whose time has come, in the order in which they start. Jobs that their
    /// schedule or their provider holds are left out.
    fn ready_in_order(&self, roster: &Roster, agent: &Agent, now: Timestamp) -> Vec<&LiveJob> {
        let holds = Holds::of(agent, self, now);
        let jobs = self.starting_order(agent).into_iter().map(|(job, _)| job);
        let is_free = |job: &&LiveJob| {
            job.is_ready(now)
                && holds.job(job).is_none()
                && self.provider_hold(roster, agent, job, now).is_none()
        };
        jobs.filter(is_free).collect()
    }

    /// Describes the jobs and firings that come before a job that waits for a place of its agent.
    fn sentence_about_place(&self, roster: &Roster, agent: &Agent, job: &LiveJob, now: Timestamp) -> String {
        let running = AgentPlaces::of_running(agent, self).taken;
        let order = self.starting_order(agent);
        let holds = Holds::of(agent, self, now);
        let earlier = order.iter().take_while(|(waits, _)| waits.id != job.id);
        let jobs =
            earlier.filter(|(waits, _)| self.takes_next_place(roster, agent, &holds, waits, now)).count();
        let own_turn = order.iter().find(|(waits, _)| waits.id == job.id).and_then(|(_, turn)| *turn);
        // No firings are counted for a job with an item, or without a turn.
        let turn = own_turn.filter(|_| job.item.is_none());
        let firings = turn.map_or(0, |turn| self.firings_before(agent, turn));
        let before = what_comes_before(jobs, firings);
        let taken = match agent.max_concurrent {
            // The config had more places when these jobs started.
            max if running > max => {
                let places = if max == 1 { "1 place".to_owned() } else { format!("{max} places") };
                format!("{running} jobs of {} run, and it has {places} now", agent.name)
            }
            1 => format!("the only place of {} is taken", agent.name),
            max => format!("all {max} places of {} are taken", agent.name),
        };
        format!("{taken} (`max_concurrent`); {before}")
    }

    /// Checks whether a pending job would take a place that becomes free now.
    fn takes_next_place(
        &self,
        roster: &Roster,
        agent: &Agent,
        holds: &Holds<'_>,
        job: &LiveJob,
        now: Timestamp,
    ) -> bool {
        let is_in_turn = job.is_ready(now) || job.requeued.keeps_place();
        // A usage limit of the agent applies to all its jobs. Only a job that continues a session can wait for another
        // limit, and only an automatic job for a reserve.
        let can_wait = job.resumes.is_some() || job.automatic;
        let is_limited = || can_wait && self.provider_hold(roster, agent, job, now).is_some();
        is_in_turn && holds.job(job).is_none() && !is_limited()
    }

    /// Counts the firings without a job whose jobs would start before a job with this turn.
    fn firings_before(&self, agent: &Agent, turn: PlaceTurn) -> usize {
        let schedules = agent.schedules.iter().filter(|known| known.trigger.driver() == Driver::Clock);
        let earlier = schedules.filter(|schedule| self.next_turn(schedule) < turn);
        earlier.map(|schedule| self.to_prepare(schedule.id).count() + self.waits_for_place(schedule)).sum()
    }

    /// Returns 1 if the schedule is due and waits for a place, else 0.
    fn waits_for_place(&self, schedule: &Schedule) -> usize {
        let record = self.schedules.get(&schedule.id).filter(|record| record.state == ScheduleState::Active);
        let waiting = record.and_then(|record| record.waiting.as_ref()).filter(|_| schedule.enabled);
        usize::from(waiting.is_some_and(|waiting| waiting.reason == SkipReason::AtCapacity))
    }

    /// Checks whether a running job of the agent uses the session of this job.
    pub(super) fn has_busy_session(&self, agent: &Agent, job: &LiveJob) -> bool {
        let key = agent.session_key(job.item.as_ref(), job.chat.as_deref(), job.confined);
        key.is_some_and(|key| self.busy_sessions(agent).contains(&key))
    }
}

fn what_comes_before(jobs: usize, firings: usize) -> String {
    let jobs = match jobs {
        0 => None,
        1 => Some("1 job waits before it".to_owned()),
        more => Some(format!("{more} jobs wait before it")),
    };
    let firings = match firings {
        0 => None,
        1 => Some("1 firing without a job may come before it".to_owned()),
        more => Some(format!("{more} firings without a job may come before it")),
    };
    match (jobs, firings) {
        (None, None) => "it is the next".to_owned(),
        (Some(one), None) | (None, Some(one)) => one,
        (Some(jobs), Some(firings)) => format!("{jobs}, and {firings}"),
    }
}

impl LiveJob {
    /// Checks whether the job is pending and does not have to wait for a time.
    pub fn is_ready(&self, now: Timestamp) -> bool {
        matches!(self.state, LiveState::Pending { not_before } if not_before.is_none_or(|at| at <= now))
    }

    /// Returns the time since which the retry of the job is due. None if the job runs, has had no attempt, or has a
    /// retry in the future.
    pub fn retry_due(&self, now: Timestamp) -> Option<Timestamp> {
        match self.state {
            LiveState::Pending { not_before } if self.began_at.is_some() => {
                not_before.filter(|at| *at <= now)
            }
            LiveState::Pending { .. } | LiveState::Running { .. } => None,
        }
    }
}

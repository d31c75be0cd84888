//! The rule that decides whether a job may start now. [`admit`] is the only function with this rule. The planner calls
//! it for pending jobs, and to explain why a job waits. The store calls it again in the transaction that claims a job,
//! or that creates and claims a job at once. Work items are taken only for places that [`free_places`] counts.

use jiff::Timestamp;

use super::turn::PlaceTurn;
use super::{Holds, LiveJob, LiveState, ScheduleHold, Snapshot};
use crate::budget::OverBudget;
use crate::provider::ProviderWait;
use crate::roster::{Agent, Schedule};

/// Facts about a job that decide whether it may start, as a snapshot or a transaction reads them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StartFacts<'a> {
    /// Budget that has no room for another attempt.
    pub over: Option<OverBudget>,
    /// Time before which the job does not start.
    pub not_before: Option<Timestamp>,
    /// Reason why its schedule holds the job, if there is one.
    pub hold: Option<ScheduleHold<'a>>,
    pub places: PlaceCount,
    pub shared: SharedPlaces,
    /// True if another job has the session that the job continues.
    pub session_busy: bool,
    /// Reason why its provider takes no job.
    pub provider: Option<ProviderWait>,
}

/// Decision whether a job may start now, with the first reason why not.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Admission<'a> {
    Admitted,
    OverBudget(OverBudget),
    NotBefore(Timestamp),
    Held(ScheduleHold<'a>),
    /// The agent has no free place.
    AtCapacity,
    /// The fleet has no free place.
    FleetFull,
    /// The node has no free place.
    NodeFull,
    SessionBusy,
    Provider(ProviderWait),
}

/// Decides whether a job may start now.
pub fn admit<'a>(facts: &StartFacts<'a>, now: Timestamp) -> Admission<'a> {
    if let Some(over) = facts.over {
        return Admission::OverBudget(over);
    }
    if let Some(at) = facts.not_before.filter(|at| *at > now) {
        return Admission::NotBefore(at);
    }
    if let Some(hold) = facts.hold {
        return Admission::Held(hold);
    }
    if facts.places.free() == 0 {
        return Admission::AtCapacity;
    }
    if facts.shared.fleet.is_some_and(PlaceCount::is_full) {
        return Admission::FleetFull;
    }
    if facts.shared.node.is_some_and(PlaceCount::is_full) {
        return Admission::NodeFull;
    }
    if facts.session_busy {
        return Admission::SessionBusy;
    }
    facts.provider.map_or(Admission::Admitted, Admission::Provider)
}

/// The places of an agent, a node or the fleet, and how many of them are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlaceCount {
    pub max: u32,
    pub taken: u32,
}

impl PlaceCount {
    pub const fn free(self) -> u32 {
        self.max.saturating_sub(self.taken)
    }

    pub const fn is_full(self) -> bool {
        self.free() == 0
    }

    /// Returns the places as if `more` further places were taken.
    pub(super) const fn without(self, more: u32) -> Self {
        Self { max: self.max, taken: self.taken.saturating_add(more) }
    }

    pub(super) const fn take(&mut self, more: u32) {
        self.taken = self.taken.saturating_add(more);
    }

    /// Counts the places that running jobs take.
    pub fn of_running(agent: &Agent, snapshot: &Snapshot) -> Self {
        let taken = snapshot.jobs.iter().filter(|job| job.takes_place_of(agent)).count();
        Self { max: agent.max_concurrent, taken: u32::try_from(taken).unwrap_or(u32::MAX) }
    }
}

/// The places that agents share: those of the fleet (`fleet.max_concurrent`) and those of the node that starts the job
/// (its capacity). None means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SharedPlaces {
    pub fleet: Option<PlaceCount>,
    pub node: Option<PlaceCount>,
}

impl SharedPlaces {
    pub fn is_full(self) -> bool {
        [self.fleet, self.node].into_iter().flatten().any(PlaceCount::is_full)
    }

    /// Takes a place for a job that starts now.
    pub(super) fn take(&mut self) {
        for places in [&mut self.fleet, &mut self.node].into_iter().flatten() {
            places.take(1);
        }
    }
}

/// Returns how many places of the agent are left now for new jobs of the schedule, after running jobs, items that are
/// being claimed, and ready jobs that come first.
pub fn free_places(now: Timestamp, agent: &Agent, schedule: &Schedule, snapshot: &Snapshot) -> usize {
    let ready = ReadyJobs::of(agent, snapshot, &Holds::of(agent, snapshot, now), now);
    (agent.max_concurrent as usize).saturating_sub(ready.before(snapshot.next_turn(schedule)))
}

/// Jobs that run, items that are being claimed, pending jobs whose time has come, and requeued jobs that keep their
/// place while they wait. Jobs that their schedule holds do not count. `count_jobs_ahead` in `store/src/claims/admission.rs`
/// repeats this rule for one transaction, but counts jobs that their schedule holds, and does not count items that are
/// being claimed.
pub(super) struct ReadyJobs {
    /// Number of the ready jobs that come before every new firing: running jobs, jobs of work items, and items that are
    /// being claimed.
    first: usize,
    /// The other ready jobs in the order in which they start, with their turn if they take turns.
    waiting: Vec<Option<PlaceTurn>>,
}

impl ReadyJobs {
    pub(super) fn of(agent: &Agent, snapshot: &Snapshot, holds: &Holds<'_>, now: Timestamp) -> Self {
        let is_ready = |job: &LiveJob| match job.state {
            LiveState::Pending { not_before } => {
                not_before.is_none_or(|at| at <= now) || job.requeued.keeps_place()
            }
            LiveState::Running { .. } => true,
        };
        let claims = snapshot.claims_of(agent, now).count();
        let first = PlaceCount::of_running(agent, snapshot).taken as usize + claims;
        let mut ready = Self { first, waiting: Vec::new() };
        for (job, turn) in snapshot.starting_order(agent) {
            match turn {
                _ if !is_ready(job) || holds.job(job).is_some() => {}
                // An item is claimed for a free place, which no later firing takes.
                _ if job.item.is_some() => ready.first += 1,
                turn => ready.waiting.push(turn),
            }
        }
        ready
    }

    pub(super) const fn count(&self) -> usize {
        self.first + self.waiting.len()
    }

    /// Counts the jobs that come before a firing with this turn. The firing comes directly before the first job with a
    /// later turn; without such a job it comes last.
    pub(super) fn before(&self, turn: PlaceTurn) -> usize {
        let later = self.waiting.iter().position(|waiting| waiting.is_some_and(|waiting| waiting > turn));
        self.first + later.unwrap_or(self.waiting.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::JobId;

    #[test]
    fn the_first_reason_against_a_start_is_returned() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let probe: JobId = "job-2026-01-01-abcdef".parse().unwrap();
        let free = StartFacts {
            over: None,
            not_before: Some(at(10)),
            hold: None,
            places: PlaceCount { max: 2, taken: 1 },
            shared: SharedPlaces::default(),
            session_busy: false,
            provider: None,
        };
        assert_eq!(admit(&free, at(10)), Admission::Admitted);
        assert_eq!(admit(&free, at(9)), Admission::NotBefore(at(10)));
        let closed = StartFacts { provider: Some(ProviderWait::Opens(at(20))), ..free };
        assert_eq!(admit(&closed, at(10)), Admission::Provider(ProviderWait::Opens(at(20))));
        let busy = StartFacts { session_busy: true, ..closed };
        assert_eq!(admit(&busy, at(10)), Admission::SessionBusy);
        let count = |taken| Some(PlaceCount { max: 4, taken });
        let node_full = StartFacts { shared: SharedPlaces { fleet: count(3), node: count(4) }, ..busy };
        assert_eq!(admit(&node_full, at(10)), Admission::NodeFull);
        let fleet_full = StartFacts { shared: SharedPlaces { fleet: count(5), node: count(4) }, ..busy };
        assert_eq!(admit(&fleet_full, at(10)), Admission::FleetFull);
        for taken in [2, 3] {
            let full = StartFacts { places: PlaceCount { max: 2, taken }, ..busy };
            assert_eq!(admit(&full, at(10)), Admission::AtCapacity);
            let held = StartFacts { hold: Some(ScheduleHold::Probe(&probe)), ..full };
            assert_eq!(admit(&held, at(10)), Admission::Held(ScheduleHold::Probe(&probe)));
            assert_eq!(admit(&held, at(9)), Admission::NotBefore(at(10)));
        }
    }
}

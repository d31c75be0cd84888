//! The order in which the schedules of an agent get its places. A schedule with `overlap: queue` makes a job at each
//! due time. If its jobs came first because they exist already, no other schedule of the agent would ever get a place.

use std::collections::HashMap;

use jiff::Timestamp;

use super::{LiveJob, LiveState, Snapshot};
use crate::id::ScheduleId;
use crate::roster::{Agent, Schedule};
use crate::trigger::Driver;

/// Turn of a waiting firing, or of the job that the firing created. The smaller turn gets a free place first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PlaceTurn {
    /// Number of jobs of its schedule that run, or that start before this firing or job.
    before: usize,
    /// End of the last run of its schedule. A schedule that never ran comes first.
    last_run_at: Option<Timestamp>,
}

impl Snapshot {
    /// Returns the turn of the schedule's next firing.
    pub(super) fn next_turn(&self, schedule: &Schedule) -> PlaceTurn {
        let jobs = self.jobs.iter().filter(|job| job.schedule == Some(schedule.id));
        let before = jobs.filter(|job| job.runs() || job.is_queued(schedule)).count();
        PlaceTurn { before, last_run_at: self.last_run_at(schedule.id) }
    }

    /// Returns the pending jobs of an agent in the order in which they start: oldest first, with one
    /// exception: the jobs that the clock fired are sorted among themselves by their turns.
    pub(super) fn starting_order(&self, agent: &Agent) -> Vec<(&LiveJob, Option<PlaceTurn>)> {
        let mut before: HashMap<ScheduleId, usize> = HashMap::new();
        for id in self.jobs.iter().filter(|job| job.runs()).filter_map(|job| job.schedule) {
            *before.entry(id).or_default() += 1;
        }
        let mut turn = |job: &LiveJob| {
            let schedule = agent.schedules.iter().find(|schedule| Some(schedule.id) == job.schedule)?;
            if !job.is_queued(schedule) {
                return None;
            }
            let earlier = before.entry(schedule.id).or_default();
            let turn = PlaceTurn { before: *earlier, last_run_at: self.last_run_at(schedule.id) };
            *earlier += 1;
            Some(turn)
        };
        let pending = self.jobs.iter().filter(|job| job.agent == agent.name && !job.runs());
        let mut order: Vec<_> = pending.map(|job| (job, turn(job))).collect();
        let mut in_turn: Vec<_> = order.iter().copied().filter(|(_, turn)| turn.is_some()).collect();
        // The sort is stable: of equal turns the older job comes first.
        in_turn.sort_by_key(|(_, turn)| *turn);
        let places = order.iter_mut().filter(|(_, turn)| turn.is_some());
        for (place, job) in places.zip(in_turn) {
            *place = job;
        }
        order
    }

    fn last_run_at(&self, schedule: ScheduleId) -> Option<Timestamp> {
        self.schedules.get(&schedule).and_then(|record| record.last_run_at)
    }
}

impl LiveJob {
    const fn runs(&self) -> bool {
        matches!(self.state, LiveState::Running { .. })
    }

    /// Checks whether the clock fired the job, and the job waits for its first attempt and takes turns with other jobs.
    fn is_queued(&self, schedule: &Schedule) -> bool {
        let waits = matches!(self.state, LiveState::Pending { not_before: None });
        waits && self.by_trigger && self.began_at.is_none() && schedule.trigger.driver() == Driver::Clock
    }
}

//! The one place where an occurrence of a trigger becomes a firing, whoever noticed it.

use cowhand_core::firing::Occasion;
use cowhand_core::roster::{Agent, Schedule};
use cowhand_core::schedule::SkipReason;
use cowhand_core::trigger::FiringKey;
use jiff::Timestamp;

use super::event::is_too_long;
use crate::daemon::tick::decide;
use crate::store::{Decision, Firing};

/// Whose occurrence it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dispatch<'a> {
    pub(crate) agent: &'a Agent,
    pub(crate) schedule: &'a Schedule,
    /// When the clock said so, if it did.
    pub(crate) due: Option<Timestamp>,
}

impl Dispatch<'_> {
    pub(crate) fn firing(self, key: FiringKey, occasion: Occasion, now: Timestamp) -> Firing {
        let decision = self.decision(&key, occasion, now);
        Firing { schedule: self.schedule.id, key, due: self.due.unwrap_or(now), decision }
    }

    /// What the schedule wants runs, or is prepared; the rest is written down.
    pub(crate) fn decision(self, key: &FiringKey, occasion: Occasion, now: Timestamp) -> Decision {
        let is_in_a_circle = key.event().is_some() && is_too_long(&occasion.task);
        if is_in_a_circle || !self.schedule.filter.passes(&occasion) {
            return Decision::Skip(SkipReason::Filtered);
        }
        let timing = &self.schedule.timing;
        let zone = self.schedule.zone.time_zone();
        if !key.is_by_clock() && !key.is_by_hand() && timing.next_allowed(now, zone).is_none() {
            return Decision::Skip(SkipReason::OutsideHours);
        }
        decide(self.agent, self.schedule, key, self.due, occasion, now)
    }
}

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
    /// What the schedule wants runs, or is prepared; the rest is written down.
    pub(crate) fn firing(self, key: FiringKey, occasion: Occasion, now: Timestamp) -> Firing {
        let Self { agent, schedule, due } = self;
        let is_in_a_circle = key.event().is_some() && is_too_long(&occasion.task);
        let decision = if is_in_a_circle || !schedule.filter.passes(&occasion) {
            Decision::Skip(SkipReason::Filtered)
        } else {
            decide(agent, schedule, &key, due, occasion, now)
        };
        Firing { schedule: schedule.id, key, due: due.unwrap_or(now), decision }
    }
}

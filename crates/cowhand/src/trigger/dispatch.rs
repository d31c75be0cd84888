//! The one place where an occurrence of a trigger becomes a firing, whoever noticed it.

use cowhand_core::firing::{self, Occasion};
use cowhand_core::roster::{Agent, Schedule};
use cowhand_core::schedule::SkipReason;
use cowhand_core::trigger::FiringKey;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::event::is_too_long;
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
    /// A job, unless the schedule does not want it.
    pub(crate) fn firing(self, key: FiringKey, occasion: &Occasion, now: Timestamp) -> Firing {
        let Self { agent, schedule, due } = self;
        let unwanted =
            !schedule.filter.passes(occasion) || (key.event().is_some() && is_too_long(&occasion.task));
        let decision = if unwanted {
            Decision::Skip(SkipReason::Filtered)
        } else {
            let zone = &TimeZone::system();
            let firing = firing::Firing { agent, schedule: Some(schedule), key: &key, due, occasion, zone };
            Decision::Run(firing.job(None, now))
        };
        Firing { schedule: schedule.id, key, due: due.unwrap_or(now), decision }
    }
}

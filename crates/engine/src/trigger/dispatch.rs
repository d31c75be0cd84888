//! Turns an occurrence of a trigger into a firing, for all kinds of triggers. Some occurrences are recorded without
//! this module: due times for which the planner makes no job, and deliveries that the trigger does not accept.

use cowhand_core::firing;
use cowhand_core::policy::ClosedBy;
use cowhand_core::roster::{Agent, Schedule};
use cowhand_core::schedule::SkipReason;
use cowhand_core::trigger::{FiringContext, FiringKey};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::event::is_too_long;
use crate::schedule_view::{BY_FILTER, BY_TRIGGER_LIMIT};
use cowhand_store::{Decision, NewFiring, audit};

/// The agent and the schedule of an occurrence.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dispatch<'a> {
    pub agent: &'a Agent,
    pub schedule: &'a Schedule,
    /// Due time, if the clock fires the schedule.
    pub due: Option<Timestamp>,
}

impl Dispatch<'_> {
    pub(crate) fn firing(self, key: FiringKey, firing_context: FiringContext, now: Timestamp) -> NewFiring {
        let (decision, note) = self.decision(&key, firing_context, now);
        NewFiring { schedule: self.schedule.id, key, due: self.due.unwrap_or(now), decision, note }
    }

    /// Decides what happens to an occurrence: it runs, it is prepared first, or it is skipped and recorded. A firing by
    /// hand is never skipped. Returns the decision and the note for the ledger.
    pub(crate) fn decision(
        self,
        key: &FiringKey,
        firing_context: FiringContext,
        now: Timestamp,
    ) -> (Decision, Option<String>) {
        match self.refusal(key, &firing_context, now).filter(|_| !key.is_by_hand()) {
            Some((reason, note)) => (Decision::Skip(reason), note),
            None if self.schedule.needs_preparing(self.agent) => {
                (Decision::Prepare(FiringContext { by: audit::current(), ..firing_context }), None)
            }
            None => {
                let Self { agent, schedule, due } = self;
                let (schedule, zone) = (Some(schedule), &TimeZone::system());
                let firing =
                    firing::Firing { agent, schedule, key, due, firing_context: &firing_context, zone };
                let note = firing_context.confined.as_deref().map(confined_note);
                (Decision::Run(firing.job(None, now)), note)
            }
        }
    }

    fn refusal(
        self,
        key: &FiringKey,
        firing_context: &FiringContext,
        now: Timestamp,
    ) -> Option<(SkipReason, Option<String>)> {
        let (timing, zone) = (&self.schedule.timing, self.schedule.zone.time_zone());
        if key.event().is_some() && is_too_long(&firing_context.task) {
            Some((SkipReason::Filtered, Some(BY_TRIGGER_LIMIT.to_owned())))
        } else if !self.schedule.passes_filter(firing_context) {
            Some((SkipReason::Filtered, Some(BY_FILTER.to_owned())))
        } else if !key.is_by_clock() && timing.next_allowed(now, zone).is_none() {
            Some((SkipReason::OutsideHours, timing.closed_by(now, zone).map(ClosedBy::sentence)))
        } else {
            None
        }
    }
}

/// Formats the note for the ledger about a firing whose text is not trusted.
pub(crate) fn confined_note(why: &str) -> String {
    format!("in the strict sandbox: {why}")
}

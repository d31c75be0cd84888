//! What a pending job waits for although its time has come.

use jiff::{SignedDuration, Timestamp};

use super::{Admission, AgentPlaces, LiveJob, LiveState, SlotWait, Snapshot, StartFacts, admit};
use crate::provider::ProviderWait;
use crate::roster::{Agent, Roster};
use crate::schedule::SkipReason;

/// What a pending job waits for although its time has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AwaitedStart {
    /// None if nothing is in its way but that no daemon runs.
    pub reason: Option<SkipReason>,
    /// When that ends by itself, if that is known.
    pub until: Option<Timestamp>,
    pub sentence: String,
}

/// Why a job does not start that nothing else holds.
const NO_DAEMON: &str = "no daemon runs; it starts when a daemon does";

impl Snapshot {
    /// Returns what a pending job waits for whose time has come: a place of its agent, its session, a slot of its provider,
    /// or a daemon. None if it runs, has to wait for a time, or starts at the daemon's next tick.
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
            // Callers have excluded these two.
            over: None,
            hold: None,
            not_before: None,
            places: AgentPlaces::of_running(agent, self),
            session_busy: self.has_busy_session(agent, job),
            provider: slot.as_ref().map(|slot| slot.until.map_or(ProviderWait::Full, ProviderWait::Opens)),
        };
        let awaited = |reason, until, sentence| Some(AwaitedStart { reason, until, sentence });
        match admit(&facts, now) {
            Admission::AtCapacity => {
                let sentence = self.sentence_about_place(agent, job, facts.places.taken);
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
                if self.is_watched(now) {
                    None
                } else {
                    awaited(None, None, NO_DAEMON.to_owned())
                }
            }
        }
    }

    /// Whether a daemon of the fleet runs, as far as the snapshot knows.
    pub fn is_watched(&self, now: Timestamp) -> bool {
        let just_now = now.checked_sub(SignedDuration::from_nanos(1)).unwrap_or(now);
        self.uptime.covers(just_now, self.moment(now))
    }

    /// Says how many jobs come before one that waits for a place of its agent.
    fn sentence_about_place(&self, agent: &Agent, job: &LiveJob, running: u32) -> String {
        let order = self.starting_order(agent);
        let before = match order.iter().take_while(|(waits, _)| waits.id != job.id).count() {
            0 => "it is the next".to_owned(),
            1 => "1 job waits before it".to_owned(),
            more => format!("{more} jobs wait before it"),
        };
        let places = if running == 1 { "1 place".to_owned() } else { format!("{running} places") };
        format!("{} has {places} (`max_concurrent`), and as many jobs run; {before}", agent.name)
    }

    /// Whether a running job of the agent has the session of this one.
    pub(super) fn has_busy_session(&self, agent: &Agent, job: &LiveJob) -> bool {
        let key = agent.session_key(job.item.as_ref(), job.chat.as_deref(), job.confined);
        key.is_some_and(|key| self.busy_sessions(agent).contains(&key))
    }
}

impl LiveJob {
    /// Whether it is pending and does not have to wait for a time.
    pub fn is_ready(&self, now: Timestamp) -> bool {
        matches!(self.state, LiveState::Pending { not_before } if not_before.is_none_or(|at| at <= now))
    }

    /// Returns since when its retry is due. None for a job without an attempt and for one whose retry lies ahead.
    pub fn retry_due(&self, now: Timestamp) -> Option<Timestamp> {
        match self.state {
            LiveState::Pending { not_before } if self.began_at.is_some() => {
                not_before.filter(|at| *at <= now)
            }
            LiveState::Pending { .. } | LiveState::Running { .. } => None,
        }
    }
}

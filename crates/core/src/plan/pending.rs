//! What a pending job waits for although its time has come.

use jiff::{SignedDuration, Timestamp};

use super::{LiveJob, LiveState, Snapshot, running};
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
    /// or a daemon. None if it runs, has to wait for a time, or starts at the daemon's next look.
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
        if let Some(sentence) = self.place_of(agent, job) {
            return Some(AwaitedStart { reason: Some(SkipReason::AtCapacity), until: None, sentence });
        }
        if self.has_busy_session(agent, job) {
            let sentence = "another job has its session and has not ended".to_owned();
            return Some(AwaitedStart { reason: Some(SkipReason::SessionBusy), until: None, sentence });
        }
        if let Some(slot) = self.slot_wait(roster, agent, job, now) {
            let (until, sentence) = (slot.until, slot.sentence);
            return Some(AwaitedStart { reason: Some(SkipReason::AtCapacity), until, sentence });
        }
        let unwatched = || AwaitedStart { reason: None, until: None, sentence: NO_DAEMON.to_owned() };
        (!self.is_watched(now)).then(unwatched)
    }

    /// Whether a daemon of the fleet runs, as far as the snapshot knows.
    pub fn is_watched(&self, now: Timestamp) -> bool {
        let just_now = now.checked_sub(SignedDuration::from_nanos(1)).unwrap_or(now);
        self.uptime.covers(just_now, self.moment(now))
    }

    /// Says how many jobs come before one that waits for a place of its agent. None if a place is free.
    fn place_of(&self, agent: &Agent, job: &LiveJob) -> Option<String> {
        let running = running(agent, self);
        if running < agent.max_concurrent {
            return None;
        }
        let order = self.starting_order(agent);
        let before = match order.iter().take_while(|(waits, _)| waits.id != job.id).count() {
            0 => "it is the next".to_owned(),
            1 => "1 job waits before it".to_owned(),
            more => format!("{more} jobs wait before it"),
        };
        let places = if running == 1 { "1 place".to_owned() } else { format!("{running} places") };
        Some(format!("{} has {places} (`max_concurrent`), and as many jobs run; {before}", agent.name))
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
            LiveState::Pending { not_before } if self.began => not_before.filter(|at| *at <= now),
            LiveState::Pending { .. } | LiveState::Running { .. } => None,
        }
    }
}

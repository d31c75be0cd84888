//! The asks whose answers agents wait for. An ask suspends the timeouts of its attempt only while the agent requests
//! the answer. If every open ask suspended them, an agent could ask once, go on working and never reach its timeout.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cowhand_core::ask::{Ask, AskId};
use cowhand_core::id::JobId;
use cowhand_core::moment::Moment;
use jiff::{SignedDuration, Timestamp};

use cowhand_system::clock::Clock;

/// Longest time without a request for the answer that still counts as a wait: the agent may have to connect again.
const MAX_PAUSE: SignedDuration = SignedDuration::from_secs(10);

/// The waits of the running attempts. They are only in memory. After a restart, the time before the new daemon first
/// sees an ask counts as a wait.
#[derive(Debug, Default)]
pub(crate) struct AnswerWaits(Mutex<HashMap<AskId, AnswerWait>>);

#[derive(Debug)]
struct AnswerWait {
    /// Number of open requests of the agent for the answer.
    requests: usize,
    /// End of the last request; before the first request, the time since which the ask is known.
    last: Moment,
    /// Total time in which the agent did not wait, excluding the time since the last request.
    away: SignedDuration,
}

/// Open request of an agent for an answer. The request ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct OpenRequest<'a> {
    waits: &'a AnswerWaits,
    clock: &'a Clock,
    ask: AskId,
}

impl AnswerWaits {
    /// Notes an ask that was just made.
    pub(crate) fn made(&self, ask: &AskId, now: Moment) {
        self.lock().entry(ask.clone()).or_insert_with(|| AnswerWait::known_since(now));
    }

    /// Notes that the agent requests the answer.
    pub(crate) fn begin<'a>(&'a self, ask: AskId, clock: &'a Clock) -> OpenRequest<'a> {
        let now = clock.moment();
        let mut waits = self.lock();
        let wait = waits.entry(ask.clone()).or_insert_with(|| AnswerWait::known_since(now));
        wait.away += wait.pause_until(now.wall, now);
        wait.requests += 1;
        drop(waits);
        OpenRequest { waits: self, clock, ask }
    }

    /// Returns for how long the agent did not wait for the answer although the ask was open.
    pub(crate) fn time_away(&self, ask: &Ask, now: Moment) -> SignedDuration {
        let mut waits = self.lock();
        let wait = waits.entry(ask.id.clone()).or_insert_with(|| AnswerWait::known_since(now));
        wait.away + wait.pause_until(ask.state.since().unwrap_or(now.wall), now)
    }

    /// Returns whether the agent waits for the answer now. Returns true for an ask that this daemon has not seen yet.
    pub(crate) fn is_waiting(&self, ask: &AskId, now: Moment) -> bool {
        self.lock().get(ask).is_none_or(|wait| wait.pause_until(now.wall, now).is_zero())
    }

    /// Forgets the asks of a job whose attempt has ended.
    pub(crate) fn forget(&self, job: &JobId) {
        self.lock().retain(|ask, _| ask.job != *job);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<AskId, AnswerWait>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AnswerWait {
    const fn known_since(now: Moment) -> Self {
        Self { requests: 0, last: now, away: SignedDuration::ZERO }
    }

    /// Returns the time from the last request until `until`. Returns zero if a request is open, or if the time is so
    /// short that it counts as a wait.
    fn pause_until(&self, until: Timestamp, now: Moment) -> SignedDuration {
        let pause = until.duration_since(self.last.on_clock_of(now));
        if self.requests > 0 || pause <= MAX_PAUSE { SignedDuration::ZERO } else { pause }
    }
}

impl Drop for OpenRequest<'_> {
    fn drop(&mut self) {
        if let Some(wait) = self.waits.lock().get_mut(&self.ask) {
            wait.requests = wait.requests.saturating_sub(1);
            wait.last = self.clock.moment();
        }
    }
}

#[cfg(test)]
mod tests {
    use cowhand_core::ask::{AskState, AskSubject};

    use super::*;

    fn at(second: i64) -> Moment {
        Timestamp::from_second(second).unwrap().into()
    }

    fn ask(state: AskState) -> Ask {
        let id: AskId = "job-2026-01-05-a1b2c3.1".parse().unwrap();
        Ask {
            job: id.job.clone(),
            id,
            agent: "coder".parse().unwrap(),
            schedule: None,
            attempt: 1,
            what: AskSubject::question("Which?"),
            asked_at: at(0).wall,
            expires_at: at(10_000).wall,
            state,
        }
    }

    #[test]
    fn only_requests_for_the_answer_are_a_wait() {
        let (waits, open) = (AnswerWaits::default(), ask(AskState::Open));
        let away = |ask: &Ask, second| waits.time_away(ask, at(second)).as_secs();
        waits.made(&open.id, at(0));
        assert_eq!(
            (away(&open, 9), waits.is_waiting(&open.id, at(9))),
            (0, true),
            "the agent may still connect"
        );
        assert_eq!((away(&open, 60), waits.is_waiting(&open.id, at(60))), (60, false));
        let expired = ask(AskState::Expired { answered_at: at(40).wall });
        assert_eq!(away(&expired, 60), 40, "the time after the end of an ask does not count");
        waits.lock().get_mut(&open.id).unwrap().requests = 1;
        assert_eq!((away(&open, 600), waits.is_waiting(&open.id, at(600))), (0, true));
        waits.forget(&open.id.job);
        assert_eq!((away(&open, 700), away(&open, 705)), (0, 0), "a new daemon counts from now");
    }
}

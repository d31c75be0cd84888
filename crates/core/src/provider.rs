//! Providers: accounts and model servers that agents share, their limits, the time until which they are used up, and
//! their reserve for jobs that people request.

mod reserve;
mod reset;
mod window;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::backoff::Backoff;
use crate::interval::Interval;
use crate::percent::Percent;
pub use reserve::{ReachedReserve, ReserveHours};
pub use reset::reset;
pub use window::{UsageWindow, WindowReport, WindowUsage};

/// An account or a model server. All agents that use it share its limits.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Provider {
    /// Maximum number of jobs of all its agents that run at the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_concurrent: Option<u32>,
    /// Minimum time between two starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_every: Option<Interval>,
    /// Action for a job that reaches the usage limit of the provider.
    pub on_limit: OnLimit,
    /// Part of the provider's 5-hour window and of its weekly window that automatic jobs do not use. While more than the
    /// rest of a window is used, as the agent's program reports it, only jobs by hand and jobs from chats start. Unset
    /// means no reserve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserve: Option<Percent>,
    /// Hours with another reserve. The first entry that contains the time counts; at all other times `reserve` counts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reserve_hours: Vec<ReserveHours>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnLimit {
    /// Wait for the end of the usage limit, then continue the session; until then, no job of the provider starts.
    #[default]
    Park,
    /// Fail; `retry` decides about another attempt.
    Fail,
}

/// A provider that is used up for now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Parked {
    pub provider: String,
    pub since: Timestamp,
    /// Time before which no job of the provider starts.
    pub until: Timestamp,
    /// Message of the provider.
    pub message: String,
    /// Number of usage limits in a row.
    pub times: u32,
}

/// State of a provider in the store.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProviderState {
    /// The last limit, even if it has ended.
    pub parked: Option<Parked>,
    pub last_start: Option<Timestamp>,
    /// Newest reports about its windows, also those whose reset has passed.
    pub windows: Vec<WindowUsage>,
}

impl ProviderState {
    /// Returns the limit that applies now, if there is one.
    pub fn used_up(&self, now: Timestamp) -> Option<&Parked> {
        self.parked.as_ref().filter(|parked| parked.until > now && !parked.begins_in_future(now))
    }
}

/// A provider with its limits on the start of jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitedProvider {
    pub provider: String,
    pub limits: Provider,
    /// Time zone of the `reserve_hours` that have none.
    pub zone: TimeZone,
}

/// Reason why a provider takes no job now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProviderWait {
    /// The provider is used up, or its last start is too recent, until this time.
    Opens(Timestamp),
    /// The job is automatic, and the reserve of the provider is reached until this time.
    Reserved { window: UsageWindow, until: Timestamp },
    /// No slot is free until a running job ends.
    Full,
}

impl ProviderWait {
    /// Returns the time at which the wait ends, if known.
    pub const fn until(self) -> Option<Timestamp> {
        match self {
            Self::Opens(until) | Self::Reserved { until, .. } => Some(until),
            Self::Full => None,
        }
    }
}

impl LimitedProvider {
    /// Returns the reason why the provider does not take a job now, if there is one. `reserve` is its reached reserve if
    /// the job is automatic, and `running` is the number of jobs that run at the provider. If several reasons have an
    /// end, the reason that ends last is returned.
    pub fn wait(
        &self,
        state: &ProviderState,
        reserve: Option<&ReachedReserve>,
        running: u32,
        now: Timestamp,
    ) -> Option<ProviderWait> {
        let opens = self.opens(state, now);
        let reserve = reserve.filter(|reserve| opens.is_none_or(|opens| opens <= reserve.until));
        if let Some(ReachedReserve { window, until, .. }) = reserve {
            return Some(ProviderWait::Reserved { window: *window, until: *until });
        }
        let is_full = || self.limits.max_concurrent.is_some_and(|max| running >= max);
        opens.map(ProviderWait::Opens).or_else(|| is_full().then_some(ProviderWait::Full))
    }

    /// Returns the time from which the usage limit and `start_every` allow the next start; none if they allow it now.
    /// Does not check `max_concurrent`.
    pub fn opens(&self, state: &ProviderState, now: Timestamp) -> Option<Timestamp> {
        let parked = state.used_up(now).map(|parked| parked.until);
        // A start in the future only means that the clock was set back.
        let paced = self.limits.start_every.zip(state.last_start.filter(|last| *last <= now));
        let paced = paced.and_then(|(every, last)| last.checked_add(every.duration()).ok());
        parked.into_iter().chain(paced).max().filter(|opens| *opens > now)
    }
}

/// Maximum time until a reported reset. A later reset is ignored, because the longest known limit is a week.
const MAX_RESET_WAIT: SignedDuration = SignedDuration::from_hours(8 * 24);
/// Time without a limit after which the next limit counts as the first again.
const LIMIT_FORGOTTEN_AFTER: SignedDuration = SignedDuration::from_hours(1);

impl Parked {
    /// Returns a sentence, for example `claude is used up: You've hit your limit`.
    pub fn sentence(&self) -> String {
        format!("{} is used up: {}", self.provider, self.message)
    }

    /// Checks whether the limit lasts at most [`MAX_PROVIDER_PAUSE`] and its start is in the future, because the clock
    /// was set back. Such a limit does not apply. A longer limit still applies, because its end counts as reported by
    /// the provider.
    fn begins_in_future(&self, now: Timestamp) -> bool {
        self.since > now && self.until.duration_since(self.since) <= MAX_PROVIDER_PAUSE
    }

    /// Returns the limit to record for a provider whose usage limit an attempt has reached. `before` is the last
    /// recorded limit of the provider, and `reset` is the end of the new limit as the provider reports it. Several jobs
    /// reach the same limit within moments, so a recorded limit that has not ended is never shortened.
    #[must_use]
    pub fn after_limit(
        before: Option<&Self>,
        provider: String,
        message: String,
        reset: Option<Timestamp>,
        now: Timestamp,
    ) -> Self {
        let row = before.filter(|before| now.duration_since(before.until) < LIMIT_FORGOTTEN_AFTER);
        let parked = row.filter(|row| row.until > now);
        let times = match (parked, row) {
            (Some(parked), _) => parked.times,
            (None, Some(row)) => row.times.saturating_add(1),
            (None, None) => 1,
        };
        let reported = reset.filter(|reset| *reset > now && reset.duration_since(now) <= MAX_RESET_WAIT);
        let until =
            reported.unwrap_or_else(|| now.checked_add(UNKNOWN_RESET_BACKOFF.after(times)).unwrap_or(now));
        let until = parked.map_or(until, |parked| until.max(parked.until));
        Self { provider, since: parked.map_or(now, |parked| parked.since), until, message, times }
    }
}

/// Backoff for a limit without a reported end.
const UNKNOWN_RESET_BACKOFF: Backoff = Backoff::doubling(SignedDuration::from_secs(15), MAX_PROVIDER_PAUSE);
const MAX_PROVIDER_PAUSE: SignedDuration = SignedDuration::from_mins(15);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_opens_after_parking_and_start_interval() {
        let at = |second: i64| Timestamp::from_second(1_000_000 + second).unwrap();
        let parked = |until| Parked {
            provider: "p".into(),
            since: at(0),
            until: at(until),
            message: String::new(),
            times: 1,
        };
        for (parked_until, last_start, every, expected) in [
            (None, None, None, None),
            (None, None, Some("10s"), None),
            (None, Some(95), Some("10s"), Some(105)),
            (None, Some(90), Some("10s"), None),
            (None, Some(95), None, None),
            (Some(100), None, None, None),
            (Some(101), None, None, Some(101)),
            (Some(101), Some(95), Some("10s"), Some(105)),
            (Some(120), Some(95), Some("10s"), Some(120)),
        ] {
            let start_every = every.map(|every| every.parse().unwrap());
            let limits = Provider { start_every, ..Provider::default() };
            let slot = LimitedProvider { provider: "p".into(), limits, zone: TimeZone::UTC };
            let state = ProviderState {
                parked: parked_until.map(parked),
                last_start: last_start.map(at),
                windows: vec![],
            };
            assert_eq!(slot.opens(&state, at(100)), expected.map(at), "{state:?} {every:?}");
        }
    }

    #[test]
    fn a_clock_set_back_does_not_keep_a_provider_closed() {
        let at = |second: i64| Timestamp::from_second(1_000_000 + second).unwrap();
        let slot = LimitedProvider {
            provider: "p".into(),
            limits: Provider { start_every: Some("10s".parse().unwrap()), ..Provider::default() },
            zone: TimeZone::UTC,
        };
        let parked = |reset: Option<i64>| {
            let parked = Parked::after_limit(None, "p".into(), "busy".into(), reset.map(at), at(1_000));
            ProviderState { parked: Some(parked), last_start: Some(at(1_000)), windows: vec![] }
        };
        assert_eq!(slot.opens(&parked(None), at(1_001)), Some(at(1_015)));
        assert_eq!(slot.opens(&parked(None), at(400)), None, "a limit without a reported end");
        assert_eq!(
            slot.opens(&parked(Some(9_000)), at(400)),
            Some(at(9_000)),
            "the provider reported the end"
        );
    }

    #[test]
    fn a_limit_without_a_reset_time_parks_longer_each_time() {
        let at = |second: i64| Timestamp::from_second(1_000_000 + second).unwrap();
        let met = |before: Option<&Parked>, reset: Option<i64>, now: i64| {
            Parked::after_limit(before, "claude".into(), "busy".into(), reset.map(at), at(now))
        };
        let seconds = |parked: &Parked, now: i64| parked.until.duration_since(at(now)).as_secs();
        let first = met(None, None, 0);
        assert_eq!((seconds(&first, 0), first.times), (15, 1));
        let same = met(Some(&first), None, 1);
        assert_eq!(
            (seconds(&same, 1), same.times, same.since),
            (15, 1, at(0)),
            "another job reached the same limit"
        );
        let second = met(Some(&first), None, 16);
        assert_eq!((seconds(&second, 16), second.times, second.since), (30, 2, at(16)));
        let many = Parked { times: 9, ..second.clone() };
        assert_eq!(seconds(&met(Some(&many), None, 100), 100), 900);
        assert_eq!(met(Some(&many), None, 10_000).times, 1, "the last limit ended long ago");
        // The reported end counts, unless it has passed or is too far away.
        assert_eq!(seconds(&met(None, Some(3_600), 0), 0), 3_600);
        assert_eq!(seconds(&met(None, Some(-5), 0), 0), 15);
        assert_eq!(seconds(&met(None, Some(9 * 86_400), 0), 0), 15);
        let parked = met(None, Some(3_600), 0);
        assert_eq!(met(Some(&parked), None, 5).until, at(3_600), "the limit is not shortened");
        assert_eq!(met(Some(&parked), Some(7_200), 5).until, at(7_200));
    }
}

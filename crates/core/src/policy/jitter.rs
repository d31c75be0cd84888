//! Jitter: the shift of due times, which spreads schedules that would be due at the same time.

use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::PolicyError;
use crate::interval::Interval;

/// Maximum delay of a firing, in percent of the interval or, for cron, of the time to the next due time. The delays
/// spread schedules that are due at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "u8", into = "u8")]
#[schemars(with = "u8", extend("minimum" = 0, "maximum" = 10))]
pub struct Jitter(u8);

impl Jitter {
    pub const NONE: Self = Self(0);
    pub const ONE: Self = Self(1);
    pub const MAX_PERCENT: u8 = 10;

    pub fn percent(percent: u8) -> Result<Self, PolicyError> {
        if percent <= Self::MAX_PERCENT { Ok(Self(percent)) } else { Err(PolicyError::Jitter(percent)) }
    }

    /// Returns the delay of a firing as a fraction of the maximum delay, from 0 to below 1. The fraction is the same
    /// for the same schedule and key on every machine.
    pub fn position(schedule: &str, key: &str) -> f64 {
        // FNV-1a, then the finisher of splitmix, so that similar inputs also differ in the high bits. A hash of the
        // standard library may change between releases; this hash must not.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for byte in schedule.bytes().chain([b'/']).chain(key.bytes()) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        hash ^= hash >> 31;
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit a double exactly")]
        let position = (hash >> 11) as f64 / (1_u64 << 53) as f64;
        position
    }

    pub fn share_of(self, whole: SignedDuration, position: f64) -> SignedDuration {
        let seconds = whole.as_secs_f64() * f64::from(self.0) / 100.0 * position.clamp(0.0, 1.0);
        SignedDuration::try_from_secs_f64(seconds).unwrap_or(SignedDuration::ZERO)
    }
}

impl From<Jitter> for u8 {
    fn from(jitter: Jitter) -> Self {
        jitter.0
    }
}

impl TryFrom<u8> for Jitter {
    type Error = PolicyError;

    fn try_from(percent: u8) -> Result<Self, PolicyError> {
        Self::percent(percent)
    }
}

impl Interval {
    /// Returns the next due time of a schedule with this interval: `now` if it never ran; otherwise one interval after
    /// the end of the last run, whatever its outcome, plus the delay by `jitter`, and not before `now`. `position` is
    /// the result of [`Jitter::position`].
    pub fn next_due(
        self,
        last_completed: Option<Timestamp>,
        jitter: Jitter,
        position: f64,
        now: Timestamp,
    ) -> Timestamp {
        let Some(last) = last_completed else { return now };
        let wait = self.duration() + jitter.share_of(self.duration(), position);
        last.checked_add(wait).unwrap_or(Timestamp::MAX).max(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_is_bounded_stable_and_spread() {
        assert!(Jitter::percent(10).is_ok());
        assert_eq!(Jitter::percent(11), Err(PolicyError::Jitter(11)));
        let hour = SignedDuration::from_hours(1);
        assert_eq!(Jitter(10).share_of(hour, 0.999), SignedDuration::from_millis(359_640));
        assert_eq!(Jitter::NONE.share_of(hour, 0.999), SignedDuration::ZERO);
        assert_eq!(Jitter::position("a", "k").to_bits(), 4_605_658_892_822_547_399, "never changes");
        let positions: Vec<f64> =
            (0..1_000).map(|n| Jitter::position("agent/check", &format!("interval:{n}"))).collect();
        assert!(positions.iter().all(|position| (0.0..1.0).contains(position)));
        for tenth in 0..10 {
            let low = f64::from(tenth) / 10.0;
            let share = positions.iter().filter(|position| (low..low + 0.1).contains(*position)).count();
            assert!((60..140).contains(&share), "tenth {tenth} holds {share} of 1000");
        }
    }

    #[test]
    fn next_due() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let now = at("2025-01-19T10:02:00Z");
        let (none, most) = (Jitter::NONE, Jitter::percent(10).unwrap());
        for (case, last, interval, jitter, position, expected) in [
            ("first run", None, "5m", none, 0.0, "2025-01-19T10:02:00Z"),
            ("first run is never delayed", None, "5m", most, 0.99, "2025-01-19T10:02:00Z"),
            ("from completion", Some("2025-01-19T10:00:00Z"), "5m", none, 0.0, "2025-01-19T10:05:00Z"),
            ("past is now", Some("2025-01-19T08:00:00Z"), "5m", none, 0.0, "2025-01-19T10:02:00Z"),
            ("jitter adds its share", Some("2025-01-19T10:00:00Z"), "1h", most, 0.5, "2025-01-19T11:03:00Z"),
            (
                "completed in the future",
                Some("2025-01-19T11:00:00Z"),
                "5m",
                none,
                0.0,
                "2025-01-19T11:05:00Z",
            ),
            (
                "later than the largest timestamp",
                Some("9999-12-01T00:00:00Z"),
                "36500d",
                none,
                0.0,
                "9999-12-30T22:00:00.999999999Z",
            ),
        ] {
            let interval: Interval = interval.parse().unwrap();
            assert_eq!(interval.next_due(last.map(at), jitter, position, now), at(expected), "{case}");
        }
    }
}

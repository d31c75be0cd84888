//! The clock of a platform, as its answers state it. The clock of this machine can be wrong, or can be set.

use std::sync::{Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use reqwest::header::{DATE, HeaderMap};
use tokio::time::Instant;

/// Difference up to which the clock of this machine counts as right. Answers state only whole seconds.
const CLOCK_TOLERANCE: SignedDuration = SignedDuration::from_secs(2);

#[derive(Debug, Default)]
pub(crate) struct PlatformClock(Mutex<Option<(Timestamp, Instant)>>);

impl PlatformClock {
    /// Records the time that an answer states in whole seconds.
    pub(crate) fn note(&self, headers: &HeaderMap) {
        if let Some(date) = date_of(headers) {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((date, Instant::now()));
        }
    }

    /// Returns the time by the clock of the platform. This is the time of this machine if it differs little, and before
    /// the first answer.
    pub(crate) fn now(&self) -> Timestamp {
        let (local, noted) = (Timestamp::now(), *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let stated = noted.and_then(|(date, at)| date.checked_add(at.elapsed()).ok());
        stated.filter(|stated| local.duration_since(*stated).abs() > CLOCK_TOLERANCE).unwrap_or(local)
    }

    /// Converts a time of this machine to the clock of the platform. A time that is still to come, because the clock of
    /// this machine was set, is replaced by now.
    pub(crate) fn converted(&self, local: Timestamp) -> Timestamp {
        let age = Timestamp::now().duration_since(local).max(SignedDuration::ZERO);
        self.now().checked_sub(age).unwrap_or(Timestamp::MIN)
    }
}

pub(crate) fn date_of(headers: &HeaderMap) -> Option<Timestamp> {
    let text = headers.get(DATE)?.to_str().ok()?;
    Some(jiff::fmt::rfc2822::parse(text).ok()?.timestamp())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_time_of_the_last_answer_goes_on() {
        let clock = PlatformClock::default();
        let mut headers = HeaderMap::new();
        headers.insert(DATE, "Mon, 05 Jan 2026 09:00:00 GMT".parse().unwrap());
        clock.note(&headers);
        tokio::time::advance(Duration::from_mins(1)).await;
        let now: Timestamp = "2026-01-05T09:01:00Z".parse().unwrap();
        assert_eq!(clock.now(), now);
        let minute = SignedDuration::from_mins(1);
        let converted = clock.converted(Timestamp::now() - minute);
        assert!((now - minute).duration_since(converted) < minute, "{converted}");
        assert_eq!(clock.converted(Timestamp::now() + SignedDuration::from_hours(1)), now);
        headers.insert(DATE, "garbage".parse().unwrap());
        clock.note(&headers);
        assert_eq!(clock.now(), now);
    }
}

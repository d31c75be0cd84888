//! Waiting for a moment of the wall clock.

use std::time::Duration;

use super::agent::nanoseconds;

const SECOND: u64 = 1_000_000_000;

/// Sleeps until a moment, in nanoseconds since 1970.
pub(crate) fn sleep_until(moment: u64) {
    std::thread::sleep(Duration::from_nanos(moment.saturating_sub(nanoseconds())));
}

/// Sleeps until the next whole second, and returns it.
pub(crate) fn next_second() -> u64 {
    let next = (nanoseconds() / SECOND + 1) * SECOND;
    sleep_until(next);
    next
}

/// Sleeps until half of a second has passed: what was due at the whole second has then ended.
pub(crate) fn next_half_second() -> u64 {
    let next = (nanoseconds() + SECOND / 2) / SECOND * SECOND + SECOND / 2;
    let next = if next > nanoseconds() { next } else { next + SECOND };
    sleep_until(next);
    next
}

/// Returns the milliseconds after the whole second.
pub(crate) fn after_second(moment: u64) -> f64 {
    (moment % SECOND) as f64 / 1e6
}

/// Returns the expression of a cron schedule in UTC that is due at a second, once a day.
pub(crate) fn cron_at(seconds: u64) -> String {
    let day = seconds % 86_400;
    format!("{} {} {} * * *", day % 60, day / 60 % 60, day / 3600)
}

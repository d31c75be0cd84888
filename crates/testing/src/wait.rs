//! Waiting for a condition.

use std::thread;
use std::time::{Duration, Instant};

/// Default deadline. It is long because machines are shared; only a failing test waits that long.
const WAIT_TIMEOUT: Duration = Duration::from_mins(2);
const POLL_EVERY: Duration = Duration::from_millis(10);

/// Calls `look` until it returns a value. Panics after two minutes.
#[track_caller]
pub fn wait_until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    wait_at_most(WAIT_TIMEOUT, what, look)
}

/// Calls `look` until it returns a value. Panics after `timeout`.
#[track_caller]
pub fn wait_at_most<T>(timeout: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + timeout;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "timed out while waiting for {what}");
        thread::sleep(POLL_EVERY);
    }
}

//! Waiting for a condition.

use std::thread;
use std::time::{Duration, Instant};

/// Default deadline. It is long because machines are shared; only a failing test waits that long.
const WAIT_TIMEOUT: Duration = Duration::from_mins(2);
/// Length of the pause after a call of `look`, as a multiple of the duration of the call. Most calls start `cowhand`.
/// The pause leaves most of the machine's time to the process for which the test waits.
const PAUSE_PER_LOOK: u32 = 3;
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// Calls `look` until it returns a value. Panics after two minutes.
#[track_caller]
pub fn wait_until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    wait_at_most(WAIT_TIMEOUT, what, look)
}

/// Calls `look` until it returns a value. Panics after `timeout`.
#[track_caller]
pub fn wait_at_most<T>(timeout: Duration, what: &str, look: impl FnMut() -> Option<T>) -> T {
    wait_or_report(timeout, what, String::new, look)
}

/// Calls `look` until it returns a value. Panics after `timeout` with the report, for example the daemon's log.
#[track_caller]
pub fn wait_or_report<T>(
    timeout: Duration,
    what: &str,
    report: impl FnOnce() -> String,
    mut look: impl FnMut() -> Option<T>,
) -> T {
    let deadline = Instant::now() + timeout;
    loop {
        let began = Instant::now();
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "timed out while waiting for {what}\n{}", report());
        thread::sleep((began.elapsed() * PAUSE_PER_LOOK).clamp(SHORTEST_PAUSE, LONGEST_PAUSE));
    }
}

//! Waits that tests shorten.
//!
//! `COWHAND_WAITS=slack_pace,chat_retry` shortens the waits with these names to a few milliseconds, so that a test of what
//! follows a wait does not take as long as the wait. Without the variable, a wait has its usual length.

use std::sync::OnceLock;
use std::time::Duration;

const SHORT_WAIT: Duration = Duration::from_millis(20);

static SHORT_WAITS: OnceLock<String> = OnceLock::new();

/// Shortens the waits with these names in this process, for tests of a library. Has no effect if a wait was asked for
/// before.
pub fn shorten(names: &str) {
    let _ = SHORT_WAITS.set(names.to_owned());
}

/// Returns the length of a wait: the usual one, unless a test shortens the waits with this name.
pub fn length(name: &str, usual: Duration) -> Duration {
    let short = SHORT_WAITS.get_or_init(|| std::env::var("COWHAND_WAITS").unwrap_or_default());
    length_of(name, usual, short)
}

fn length_of(name: &str, usual: Duration, short: &str) -> Duration {
    if short.split(',').any(|known| known == name) { usual.min(SHORT_WAIT) } else { usual }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_named_waits_are_short() {
        let minute = Duration::from_mins(1);
        for (short, expected) in
            [("", minute), ("other", minute), ("retry", SHORT_WAIT), ("other,retry", SHORT_WAIT)]
        {
            assert_eq!(length_of("retry", minute, short), expected, "{short}");
        }
        assert_eq!(length_of("retry", Duration::ZERO, "retry"), Duration::ZERO);
        assert_eq!(length("retry", minute), minute);
    }
}

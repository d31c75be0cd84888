//! Slack's timestamps, which are also the ids of messages in a channel: seconds with six decimals.

use jiff::Timestamp;

use super::PLATFORM;
use crate::ChatError;

/// Returns the time of a message; the epoch if the text is not a timestamp.
pub(super) fn time_of(ts: &str) -> Timestamp {
    let (seconds, fraction) = ts.split_once('.').unwrap_or((ts, "0"));
    let micros: i64 = format!("{fraction:0<6.6}").parse().unwrap_or(0);
    let seconds: i64 = seconds.parse().unwrap_or(0);
    let micros = seconds.checked_mul(1_000_000).and_then(|seconds| seconds.checked_add(micros));
    micros.and_then(|micros| Timestamp::from_microsecond(micros).ok()).unwrap_or(Timestamp::UNIX_EPOCH)
}

pub(super) fn ts_of(time: Timestamp) -> String {
    let micros = time.as_microsecond().max(0);
    format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}

/// Splits the id of a message into its channel and its timestamp.
pub(super) fn split_id(id: &str) -> Result<(&str, &str), ChatError> {
    id.split_once(':').ok_or_else(|| ChatError::Refused {
        platform: PLATFORM,
        reason: format!("`{id}` is not the id of a message"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_read_and_written() {
        for (ts, micros) in [("1700000000.000100", 1_700_000_000_000_100), ("5", 5_000_000), ("x.y", 0)] {
            assert_eq!(time_of(ts).as_microsecond(), micros, "{ts}");
        }
        assert_eq!(ts_of(time_of("1700000000.000100")), "1700000000.000100");
        assert_eq!(split_id("C1:1.2"), Ok(("C1", "1.2")));
        assert!(split_id("C1").is_err());
    }
}

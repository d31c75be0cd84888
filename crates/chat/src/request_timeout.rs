//! The time limit of a request, which depends on the size of its body.

use std::time::Duration;

/// Time for the request itself and for the answer.
const ANSWER_TIME: Duration = Duration::from_secs(30);
/// Slowest upload that is waited for, in bytes for each second.
const SLOWEST_UPLOAD: u64 = 32 * 1024;

/// Returns the time limit of a request with a body of this size, until the answer is read.
pub(crate) const fn request_timeout(body_bytes: usize) -> Duration {
    ANSWER_TIME.saturating_add(Duration::from_secs(body_bytes as u64 / SLOWEST_UPLOAD))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_body_has_more_time() {
        const MIB: usize = 1024 * 1024;
        for (bytes, seconds) in [(0, 30), (1_000, 30), (MIB, 62), (10 * MIB, 350), (50 * MIB, 1_630)] {
            assert_eq!(request_timeout(bytes).as_secs(), seconds, "{bytes}");
        }
    }
}

//! Whether a post of an answer is tried again after an error, and when.

use std::time::Duration;

use cowhand_chat::ChatError;

use super::posts::wait_after;

/// Wait before the next try of a post that the platform refused because of the token. Until the bot is connected again,
/// the connector makes no request for such a try.
const REVOKED_WAIT: Duration = Duration::from_secs(2);

/// The failed tries of one post.
#[derive(Debug)]
pub(super) struct PostTries {
    /// Maximum number of tries that count.
    max: u32,
    failures: u32,
    /// Number of failures because the platform was not available. Rate limits and refused tokens do not count.
    counted: u32,
}

impl PostTries {
    /// Allows this number of failures. Rate limits and refused tokens do not count.
    pub(super) const fn at_most(max: u32) -> Self {
        Self { max, failures: 0, counted: 0 }
    }

    /// Notes an error. Returns the wait before the next try; none if there is no further try.
    pub(super) fn wait_after(&mut self, error: &ChatError) -> Option<Duration> {
        self.failures += 1;
        self.counted += u32::from(matches!(error, ChatError::Unavailable { .. }));
        match error {
            ChatError::Revoked { .. } => Some(REVOKED_WAIT),
            error if error.is_temporary() && self.counted < self.max => {
                Some(wait_after(error, self.failures))
            }
            _ => None,
        }
    }

    pub(super) const fn is_first_failure(&self) -> bool {
        self.failures == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_failures_of_the_platform_count() {
        let unavailable = ChatError::Unavailable { platform: "Slack", reason: "x".into() };
        let limited = ChatError::RateLimited { platform: "Slack", retry_after: Duration::from_secs(7) };
        let revoked = ChatError::Revoked { platform: "Slack", reason: "x".into() };
        let refused = ChatError::Refused { platform: "Slack", reason: "x".into() };
        let mut tries = PostTries::at_most(10);
        let mut waits = Vec::new();
        while let Some(wait) = tries.wait_after(&unavailable) {
            waits.push(wait.as_secs());
            assert_eq!(tries.wait_after(&limited), Some(Duration::from_secs(7)));
            assert_eq!(tries.wait_after(&revoked), Some(REVOKED_WAIT));
        }
        assert_eq!(waits.len(), 9, "the tenth failure is the last one: {waits:?}");
        assert!(waits.is_sorted() && waits[0] == 1 && waits[8] == 60, "{waits:?}");
        assert_eq!(PostTries::at_most(10).wait_after(&refused), None);
    }
}

//! When the progress message of a job is posted or edited again after a failure.

use cowhand_chat::ChatError;
use tokio::time::Instant;

use super::posts::wait_after;

/// The failed posts and edits of the progress message since the last one that succeeded.
#[derive(Debug, Default)]
pub(super) struct ProgressTries {
    failures: u32,
    /// Time before which it is not tried again; none if it may be tried now.
    not_before: Option<Instant>,
    /// True if the platform refuses it, so that it is not tried again before the end.
    is_refused: bool,
}

impl ProgressTries {
    /// Returns whether the progress message may be posted or edited now.
    pub(super) fn may_try(&self) -> bool {
        !self.is_refused && self.not_before.is_none_or(|not_before| not_before <= Instant::now())
    }

    pub(super) const fn note_success(&mut self) {
        (self.failures, self.not_before) = (0, None);
    }

    /// Notes a failure. The next try follows after a growing wait, unless the platform refuses the message.
    pub(super) fn note_failure(&mut self, error: &ChatError) {
        self.failures += 1;
        self.not_before = Some(Instant::now() + wait_after(error, self.failures));
        self.is_refused = matches!(error, ChatError::Refused { .. } | ChatError::TooLarge { .. });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::*;

    /// Returns after how many seconds the next try is allowed; none if it is not allowed within an hour.
    async fn wait(tries: &ProgressTries) -> Option<u64> {
        let start = Instant::now();
        while !tries.may_try() {
            if start.elapsed() > Duration::from_hours(1) {
                return None;
            }
            advance(Duration::from_secs(1)).await;
        }
        Some(start.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn waits_grow_with_each_failure_and_a_refusal_is_final() {
        let unavailable = ChatError::Unavailable { platform: "Slack", reason: "x".into() };
        let limited = ChatError::RateLimited { platform: "Slack", retry_after: Duration::from_secs(90) };
        let refused = ChatError::Refused { platform: "Slack", reason: "x".into() };
        let mut tries = ProgressTries::default();
        assert_eq!(wait(&tries).await, Some(0));
        for expected in [1, 2, 4, 8, 16, 32, 60, 60] {
            tries.note_failure(&unavailable);
            assert_eq!(wait(&tries).await, Some(expected));
        }
        tries.note_failure(&limited);
        assert_eq!(wait(&tries).await, Some(90), "the platform states the wait");
        tries.note_success();
        tries.note_failure(&unavailable);
        assert_eq!(wait(&tries).await, Some(1), "a success ends the growth");
        tries.note_failure(&refused);
        assert_eq!(wait(&tries).await, None);
    }
}

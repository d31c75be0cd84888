//! The limit of waits for a store that does not answer or cannot be written, while the daemon ends.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::error::StoreError;

/// Longest wait, while the daemon ends, for a store that does not answer or cannot be written. The limit applies to the
/// sum of the waits of all calls.
pub const SHUTDOWN_STORE_TIMEOUT: Duration = Duration::from_secs(10);
/// Shortest time for a call after [`SHUTDOWN_STORE_TIMEOUT`] has passed, because the server may answer again.
const MIN_CALL_TIME: Duration = Duration::from_millis(200);

/// Limit of waits during a shutdown. All clones of a store share it.
#[derive(Debug)]
pub(crate) struct ShutdownLimit {
    /// Start of the shutdown; `None` while the daemon runs.
    ending_since: watch::Sender<Option<Instant>>,
    unanswered: Mutex<UnansweredTime>,
}

impl Default for ShutdownLimit {
    fn default() -> Self {
        Self { ending_since: watch::Sender::new(None), unanswered: Mutex::default() }
    }
}

/// Time for which the store has not answered while the daemon ends: the server answers no call, or the file cannot be
/// written. It grows only while a call waits, or from a failed call to the next answer.
#[derive(Debug, Default)]
struct UnansweredTime {
    /// Time that was counted before `since`.
    earlier: Duration,
    /// Start of the current count; `None` while the count is stopped.
    since: Option<Instant>,
    /// Number of calls that wait.
    waiting_calls: usize,
    has_failed: bool,
}

impl UnansweredTime {
    fn length(&self) -> Duration {
        self.earlier + self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Starts or stops the count, after a change of the other fields.
    fn update(&mut self) {
        if self.waiting_calls > 0 || self.has_failed {
            self.since.get_or_insert_with(Instant::now);
        } else {
            self.earlier = self.length();
            self.since = None;
        }
    }

    fn record_failure(&mut self) {
        self.has_failed = true;
        self.update();
    }

    fn record_answer(&mut self) {
        *self = Self { waiting_calls: self.waiting_calls, ..Self::default() };
        self.update();
    }
}

/// A call that waits. The time of its wait counts even if its caller drops the call. The time of calls that wait at the
/// same time counts once.
struct WaitingCall<'a>(&'a ShutdownLimit);

impl<'a> WaitingCall<'a> {
    /// Starts to count a call. Returns the call, and the time for which the store has not answered so far.
    fn begin(limit: &'a ShutdownLimit) -> (Self, Duration) {
        let mut unanswered = limit.lock();
        unanswered.waiting_calls += 1;
        unanswered.update();
        (Self(limit), unanswered.length())
    }
}

impl Drop for WaitingCall<'_> {
    fn drop(&mut self) {
        let mut unanswered = self.0.lock();
        unanswered.waiting_calls -= 1;
        unanswered.update();
    }
}

impl ShutdownLimit {
    /// Starts the shutdown, which limits all calls, including calls that already wait.
    pub(crate) fn begin(&self) {
        self.ending_since.send_if_modified(|ending_since| {
            ending_since.replace(ending_since.unwrap_or_else(Instant::now)).is_none()
        });
    }

    /// Returns whether the shutdown has begun.
    pub(crate) fn has_begun(&self) -> bool {
        self.ending_since.borrow().is_some()
    }

    /// Returns for how long the store has not answered during the shutdown; `None` if no call has waited or failed
    /// since the last answer.
    pub(crate) fn unanswered_time(&self) -> Option<Duration> {
        Some(self.lock().length()).filter(|length| !length.is_zero())
    }

    /// Runs a call to the server. During a shutdown, all calls together wait at most [`SHUTDOWN_STORE_TIMEOUT`]. Each
    /// answer restarts that time. The server may still execute a call that is given up.
    pub(crate) async fn during<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let started_at = Instant::now();
        let answer = tokio::select! {
            biased;
            answer = call => answer,
            () = self.wait_for_limit(started_at) => return Err(StoreError::Connection(sqlx::Error::PoolTimedOut.into())),
        };
        self.record(&answer);
        answer
    }

    /// Records the result of a call. During the shutdown, a call that the store could not execute counts as unanswered
    /// from its end to the next answer. Every other result is an answer.
    pub(crate) fn record<T>(&self, answer: &Result<T, StoreError>) {
        let is_ending = self.ending_since.borrow().is_some();
        match answer {
            Err(
                StoreError::Connection(_)
                | StoreError::Statement { .. }
                | StoreError::Commit(_)
                | StoreError::Disk { .. }
                | StoreError::FileChanged { .. }
                | StoreError::PermissionDenied { .. }
                | StoreError::Damaged(_),
            ) if is_ending => self.lock().record_failure(),
            _ => self.lock().record_answer(),
        }
    }

    async fn wait_for_limit(&self, started_at: Instant) {
        // The channel does not close, because `self` owns the sender.
        let _ = self.ending_since.subscribe().wait_for(Option::is_some).await;
        let (_call, unanswered) = WaitingCall::begin(self);
        let until = Instant::now() + SHUTDOWN_STORE_TIMEOUT.saturating_sub(unanswered);
        sleep_until(until.max(started_at + MIN_CALL_TIME)).await;
    }

    fn lock(&self) -> MutexGuard<'_, UnansweredTime> {
        self.unanswered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use cowhand_system::disk::DiskProblem;

    use super::*;

    async fn is_given_up(limit: &ShutdownLimit) -> bool {
        let call = pending::<Result<(), StoreError>>();
        tokio::time::timeout(Duration::from_mins(10), limit.during(call)).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn all_calls_share_one_limit() {
        let limit = ShutdownLimit::default();
        assert!(!is_given_up(&limit).await, "no limit applies before the shutdown");
        assert!(limit.unanswered_time().is_none());
        limit.begin();
        let started_at = Instant::now();
        for _ in 0..4 {
            assert!(is_given_up(&limit).await);
        }
        assert!(
            started_at.elapsed() < SHUTDOWN_STORE_TIMEOUT + 4 * MIN_CALL_TIME,
            "{:?}",
            started_at.elapsed()
        );
        assert!(limit.unanswered_time() >= Some(SHUTDOWN_STORE_TIMEOUT));
        limit.during(ready(Ok(()))).await.unwrap();
        assert!(limit.unanswered_time().is_none(), "the server has answered");
        let started_at = Instant::now();
        assert!(
            is_given_up(&limit).await && started_at.elapsed() >= SHUTDOWN_STORE_TIMEOUT,
            "the answer restarts the time"
        );
    }

    /// The waits of callers with their own, shorter timeouts add up. The time between them does not count.
    #[tokio::test(start_paused = true)]
    async fn dropped_calls_count_as_long_as_they_waited() {
        let limit = ShutdownLimit::default();
        limit.begin();
        for _ in 0..3 {
            let call = limit.during(pending::<Result<(), StoreError>>());
            assert!(tokio::time::timeout(Duration::from_secs(2), call).await.is_err());
            tokio::time::sleep(Duration::from_mins(1)).await;
        }
        assert_eq!(limit.unanswered_time(), Some(Duration::from_secs(6)));
        let started_at = Instant::now();
        assert!(is_given_up(&limit).await);
        assert_eq!(started_at.elapsed(), SHUTDOWN_STORE_TIMEOUT.saturating_sub(Duration::from_secs(6)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_fails_at_once_counts_as_unanswered() {
        let limit = ShutdownLimit::default();
        limit.begin();
        let refused = || ready(Err::<(), _>(StoreError::Connection(sqlx::Error::PoolTimedOut.into())));
        limit.during(refused()).await.unwrap_err();
        tokio::time::sleep(SHUTDOWN_STORE_TIMEOUT).await;
        assert_eq!(limit.unanswered_time(), Some(SHUTDOWN_STORE_TIMEOUT));
        limit.during(ready(Ok(()))).await.unwrap();
        assert!(limit.unanswered_time().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_cannot_be_written_counts_as_unanswered() {
        let limit = ShutdownLimit::default();
        let full = || Err::<(), _>(StoreError::Disk { problem: DiskProblem::Full, folder: "/x".to_owned() });
        limit.record(&full());
        tokio::time::sleep(SHUTDOWN_STORE_TIMEOUT).await;
        assert!(limit.unanswered_time().is_none(), "no limit applies before the shutdown");
        limit.begin();
        limit.record(&full());
        tokio::time::sleep(SHUTDOWN_STORE_TIMEOUT).await;
        assert_eq!(limit.unanswered_time(), Some(SHUTDOWN_STORE_TIMEOUT));
        limit.record(&Ok(()));
        assert!(limit.unanswered_time().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn the_limit_also_applies_to_a_call_that_already_waits() {
        let limit = std::sync::Arc::new(ShutdownLimit::default());
        let waits = tokio::spawn({
            let limit = limit.clone();
            async move { is_given_up(&limit).await }
        });
        tokio::time::sleep(Duration::from_mins(1)).await;
        limit.begin();
        let ended = Instant::now();
        assert!(waits.await.unwrap());
        assert_eq!(ended.elapsed().as_secs(), SHUTDOWN_STORE_TIMEOUT.as_secs());
    }
}

//! The strategy for everything that has to be polled: sleep, fetch, pass on.

use std::time::Duration;

use anyhow::anyhow;
use async_trait::async_trait;
use cowhand_core::duration;
use tokio::sync::watch;

use super::strategy::{
    ERROR_BACKOFF, Paced, RetryAfter, Task, TaskSource, TriggerStrategy, find_in_error, stopped,
};
use cowhand_work::WorkSourceError;

/// The strategy that polls a source at an interval, and less often while the source fails.
pub struct PollingStrategy {
    source: Box<dyn TaskSource>,
    poll_interval: Duration,
    fetch_timeout: Duration,
    poll_immediately: bool,
    consecutive_errors: u32,
    retry_after: Option<Duration>,
    wake: Option<watch::Receiver<()>>,
    /// True if a wake caused the last poll, so that a second poll follows after [`SECOND_POLL_AFTER`] at the latest.
    looks_again: bool,
}

/// Longest wait between the poll that a wake causes and a second poll. The second poll is needed because the list may
/// show the change later than the delivery reports it. Wakes before the second poll are ignored, so that many
/// deliveries cause few polls.
const SECOND_POLL_AFTER: Duration = Duration::from_secs(10);
const MIN_POLL_WAIT: Duration = Duration::from_secs(1);
/// Time limit for a whole fetch. Thousands of items are many pages.
const FETCH_TIMEOUT: Duration = Duration::from_mins(5);

impl std::fmt::Debug for PollingStrategy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PollingStrategy")
            .field("source", &self.source.source_type())
            .field("poll_interval", &self.poll_interval)
            .field("consecutive_errors", &self.consecutive_errors)
            .finish_non_exhaustive()
    }
}

impl PollingStrategy {
    /// Creates a strategy with an immediate first poll. An interval below one second counts as one second.
    pub fn new(source: impl TaskSource + 'static, poll_interval: Duration) -> Self {
        Self {
            source: Box::new(source),
            poll_interval: poll_interval.max(MIN_POLL_WAIT),
            fetch_timeout: FETCH_TIMEOUT,
            poll_immediately: true,
            consecutive_errors: 0,
            retry_after: None,
            wake: None,
            looks_again: false,
        }
    }

    /// Sets the signal that makes the strategy poll before its next poll is due.
    #[must_use]
    pub fn woken_by(self, wake: watch::Receiver<()>) -> Self {
        Self { wake: Some(wake), ..self }
    }

    /// Sets whether the first poll is immediate. With `false`, the first poll waits for the interval, as later polls
    /// do.
    #[must_use]
    pub fn poll_immediately(self, poll_immediately: bool) -> Self {
        Self { poll_immediately, ..self }
    }

    #[must_use]
    pub fn fetch_timeout(self, fetch_timeout: Duration) -> Self {
        Self { fetch_timeout, ..self }
    }

    /// Returns the wait before the next fetch: the interval, and after errors also [`ERROR_BACKOFF`]. A wait that the
    /// source asked for replaces both. The first poll can be immediate. The wait for the second poll after a wake is
    /// [`SECOND_POLL_AFTER`] or the interval, whichever is shorter.
    fn delay(&self) -> Duration {
        let backoff = match self.consecutive_errors {
            0 => Duration::ZERO,
            errors => ERROR_BACKOFF.wait_after(errors),
        };
        match self.retry_after {
            _ if self.poll_immediately => Duration::ZERO,
            Some(asked) => asked.max(MIN_POLL_WAIT),
            None if self.looks_again => SECOND_POLL_AFTER.min(self.poll_interval),
            None => self.poll_interval + backoff,
        }
    }

    /// Waits until the next poll. A wait that the source asked for has precedence over a wake.
    async fn wait(&mut self) {
        let sleep = tokio::time::sleep(self.delay());
        let accepts_wakes = self.retry_after.is_none() && !self.looks_again;
        let wake = self.wake.as_mut().filter(|_| accepts_wakes);
        let woken = async {
            let Some(wake) = wake else { return std::future::pending().await };
            if wake.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let is_woken = tokio::select! {
            () = sleep => false,
            () = woken => true,
        };
        self.looks_again = is_woken;
        // The fetch sees everything that was signalled before it begins.
        self.wake.iter_mut().for_each(watch::Receiver::mark_unchanged);
    }

    async fn poll(&mut self) -> anyhow::Result<Vec<Task>> {
        self.wait().await;
        self.poll_immediately = false;
        let limit = self.fetch_timeout;
        let fetched = tokio::time::timeout(limit, self.source.fetch_tasks()).await;
        match fetched.unwrap_or_else(|_| Err(anyhow!("no answer within {}", duration::exact(limit)))) {
            Ok(tasks) => {
                (self.consecutive_errors, self.retry_after) = (0, None);
                Ok(tasks)
            }
            Err(error) => {
                self.consecutive_errors = self.consecutive_errors.saturating_add(1);
                self.retry_after = retry_after(&error);
                Err(error.context(Paced))
            }
        }
    }
}

#[async_trait]
impl TriggerStrategy for PollingStrategy {
    async fn next_tasks(&mut self, shutdown: &watch::Receiver<bool>) -> anyhow::Result<Vec<Task>> {
        tokio::select! {
            biased;
            () = stopped(shutdown) => Ok(Vec::new()),
            tasks = self.poll() => tasks,
        }
    }

    fn is_listing(&self) -> bool {
        true
    }
}

pub fn retry_after(error: &anyhow::Error) -> Option<Duration> {
    let asked = find_in_error::<RetryAfter>(error).map(|asked| asked.0);
    asked.or_else(|| find_in_error::<WorkSourceError>(error)?.retry_after())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::time::Instant;

    use super::*;

    /// A source whose next `failures` fetches fail.
    struct Source {
        failures: Arc<AtomicU32>,
        asks_for: Option<Duration>,
        takes: Duration,
    }

    #[async_trait]
    impl TaskSource for Source {
        async fn fetch_tasks(&self) -> anyhow::Result<Vec<Task>> {
            tokio::time::sleep(self.takes).await;
            let fails =
                self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            match (fails, self.asks_for) {
                (Err(_), _) => Ok(vec![Task::default()]),
                (Ok(_), Some(asked)) => Err(anyhow!("slow down").context(RetryAfter(asked))),
                (Ok(_), None) => Err(anyhow!("away")),
            }
        }

        fn source_type(&self) -> &'static str {
            "test"
        }
    }

    fn source(failures: u32) -> (Source, Arc<AtomicU32>) {
        let failures = Arc::new(AtomicU32::new(failures));
        (Source { failures: Arc::clone(&failures), asks_for: None, takes: Duration::ZERO }, failures)
    }

    async fn seconds(polling: &mut PollingStrategy) -> (u64, bool) {
        let (_running, shutdown) = watch::channel(false);
        let began = Instant::now();
        let answer = polling.next_tasks(&shutdown).await;
        (began.elapsed().as_secs(), answer.is_ok())
    }

    #[tokio::test(start_paused = true)]
    async fn the_poll_interval_grows_with_errors_up_to_a_limit() {
        let (source, failures) = source(0);
        let mut polling = PollingStrategy::new(source, Duration::from_mins(1));
        assert_eq!(seconds(&mut polling).await, (0, true), "the first poll is immediate");
        assert_eq!(seconds(&mut polling).await, (60, true));
        failures.store(100, Ordering::SeqCst);
        let mut waits = Vec::new();
        for _ in 0..100 {
            let (waited, ok) = seconds(&mut polling).await;
            assert!(!ok);
            waits.push(waited);
        }
        // The wait before a poll, by the number of errors before it.
        for (errors, expected) in
            [(0, 60), (1, 62), (2, 64), (14, 88), (15, 90), (16, 90), (50, 90), (99, 90)]
        {
            assert_eq!(waits[errors], expected, "{errors}");
        }
        assert_eq!(seconds(&mut polling).await, (90, true), "the wait after all errors");
        assert_eq!(seconds(&mut polling).await, (60, true), "a success ends the backoff");
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_poll_can_wait_for_the_interval() {
        let (source, _) = source(0);
        let mut polling = PollingStrategy::new(source, Duration::from_mins(1)).poll_immediately(false);
        assert_eq!(seconds(&mut polling).await, (60, true));
    }

    #[tokio::test(start_paused = true)]
    async fn a_requested_wait_replaces_the_poll_interval() {
        let (source, _) = source(1);
        let source = Source { asks_for: Some(Duration::from_secs(1_000)), ..source };
        let mut polling = PollingStrategy::new(source, Duration::from_mins(1));
        assert_eq!(seconds(&mut polling).await, (0, false));
        assert_eq!(seconds(&mut polling).await, (1_000, true));
        assert_eq!(seconds(&mut polling).await, (60, true));
    }

    #[tokio::test(start_paused = true)]
    async fn wakes_cause_early_polls_at_a_limited_rate() {
        let (source, failures) = source(0);
        let wake = watch::Sender::new(());
        let mut polling = PollingStrategy::new(source, Duration::from_hours(1)).woken_by(wake.subscribe());
        assert_eq!(seconds(&mut polling).await, (0, true));
        let told = |after| {
            let wake = wake.clone();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(after)).await;
                wake.send_replace(());
            })
        };
        told(7);
        assert_eq!(seconds(&mut polling).await, (7, true), "a wake causes a poll at once");
        (0..9).for_each(|after| drop(told(after)));
        assert_eq!(seconds(&mut polling).await, (10, true), "many wakes cause one more poll");
        assert_eq!(seconds(&mut polling).await, (3_600, true), "no wake is left");
        failures.store(1, Ordering::SeqCst);
        wake.send_replace(());
        assert_eq!(seconds(&mut polling).await, (0, false), "a wake before the call counts");
        assert_eq!(seconds(&mut polling).await, (10, true));
        drop(wake);
        assert_eq!(seconds(&mut polling).await, (3_600, true), "without a sender there are no wakes");
    }

    #[tokio::test(start_paused = true)]
    async fn a_wake_does_not_shorten_a_requested_wait() {
        let (source, _) = source(1);
        let source = Source { asks_for: Some(Duration::from_secs(1_000)), ..source };
        let wake = watch::Sender::new(());
        let mut polling = PollingStrategy::new(source, Duration::from_mins(1)).woken_by(wake.subscribe());
        assert_eq!(seconds(&mut polling).await, (0, false));
        wake.send_replace(());
        assert_eq!(seconds(&mut polling).await, (1_000, true));
    }

    #[tokio::test(start_paused = true)]
    async fn limits() {
        let (never, _) = source(0);
        let never = Source { takes: Duration::from_hours(1_000), ..never };
        let mut polling = PollingStrategy::new(never, Duration::ZERO).fetch_timeout(Duration::from_secs(7));
        assert_eq!(seconds(&mut polling).await, (7, false), "a fetch has a time limit");
        assert_eq!(seconds(&mut polling).await, (1 + 2 + 7, false), "the interval is at least a second");
    }
}

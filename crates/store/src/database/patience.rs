//! How long a server that does not answer is waited for while the daemon ends.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::error::StoreError;

/// How long a server may be silent while the daemon ends, for all calls together.
pub const LAST_WAIT: Duration = Duration::from_secs(10);
/// How long one call is tried after that: the server may be back.
const LAST_TRY: Duration = Duration::from_millis(500);

/// The end of waiting, which all clones of a store share.
#[derive(Debug)]
pub(crate) struct Patience {
    /// Since when the daemon ends.
    ends: watch::Sender<Option<Instant>>,
    /// Since when no call was answered while the daemon ends.
    silent_since: Mutex<Option<Instant>>,
}

impl Default for Patience {
    fn default() -> Self {
        Self { ends: watch::Sender::new(None), silent_since: Mutex::new(None) }
    }
}

/// A wait that ends the silence it began if its caller does not wait any longer.
struct Waiting<'a> {
    patience: &'a Patience,
    began: Option<Instant>,
}

impl Patience {
    /// Begins to bound all calls, also those that wait already.
    pub(crate) fn end(&self) {
        self.ends.send_if_modified(|ends| ends.replace(ends.unwrap_or_else(Instant::now)).is_none());
    }

    /// Returns for how long the server has been silent while the daemon ends.
    pub(crate) fn silence(&self) -> Option<Duration> {
        self.silent_since().map(|since| since.elapsed())
    }

    /// Runs a call to the server. While the daemon ends, all calls together wait for [`LAST_WAIT`] at most, counted anew
    /// from each answer. A call that is dropped is one of which nobody knows whether it was written, as after a crash.
    pub(crate) async fn during<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let begun = Instant::now();
        let answer = tokio::select! {
            biased;
            answer = call => answer,
            () = self.run_out(begun) => return Err(StoreError::Connection(sqlx::Error::PoolTimedOut)),
        };
        let ends = *self.ends.borrow();
        match (&answer, ends) {
            (Err(StoreError::Connection(_) | StoreError::Statement { .. }), Some(ends)) => {
                self.silent_since().get_or_insert(begun.max(ends));
            }
            _ => *self.silent_since() = None,
        }
        answer
    }

    async fn run_out(&self, begun: Instant) {
        // The sender lives as long as we do.
        let _ = self.ends.subscribe().wait_for(Option::is_some).await;
        let mut waiting = Waiting { patience: self, began: None };
        let since = *self.silent_since().get_or_insert_with(|| *waiting.began.insert(Instant::now()));
        sleep_until((since + LAST_WAIT).max(begun + LAST_TRY)).await;
        waiting.began = None;
    }

    fn silent_since(&self) -> MutexGuard<'_, Option<Instant>> {
        self.silent_since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut since = self.patience.silent_since();
        if self.began.is_some() && *since == self.began {
            *since = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    async fn is_left(patience: &Patience) -> bool {
        let call = pending::<Result<(), StoreError>>();
        tokio::time::timeout(Duration::from_mins(10), patience.during(call)).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_server_is_waited_for_once() {
        let patience = Patience::default();
        assert!(!is_left(&patience).await, "as long as nobody ends anything");
        assert!(patience.silence().is_none());
        patience.end();
        let begun = Instant::now();
        for _ in 0..4 {
            assert!(is_left(&patience).await);
        }
        assert!(begun.elapsed() < LAST_WAIT + 4 * LAST_TRY, "{:?}", begun.elapsed());
        assert!(patience.silence() >= Some(LAST_WAIT));
        patience.during(ready(Ok(()))).await.unwrap();
        assert!(patience.silence().is_none(), "it is back");
        let begun = Instant::now();
        assert!(is_left(&patience).await && begun.elapsed() >= LAST_WAIT, "and may take its time again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_nobody_waits_for_any_more_is_no_silence() {
        let patience = Patience::default();
        patience.end();
        let call = patience.during(pending::<Result<(), StoreError>>());
        assert!(tokio::time::timeout(Duration::from_secs(2), call).await.is_err());
        assert!(patience.silence().is_none());
        let refused = || ready(Err::<(), _>(StoreError::Connection(sqlx::Error::PoolTimedOut)));
        patience.during(refused()).await.unwrap_err();
        tokio::time::sleep(LAST_WAIT).await;
        assert_eq!(patience.silence(), Some(LAST_WAIT), "what fails at once is not answered either");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_waits_already_is_bounded_from_then_on() {
        let patience = std::sync::Arc::new(Patience::default());
        let waits = tokio::spawn({
            let patience = patience.clone();
            async move { is_left(&patience).await }
        });
        tokio::time::sleep(Duration::from_mins(1)).await;
        patience.end();
        let ended = Instant::now();
        assert!(waits.await.unwrap());
        assert_eq!(ended.elapsed().as_secs(), LAST_WAIT.as_secs());
    }
}

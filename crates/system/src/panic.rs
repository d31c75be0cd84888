//! Panics: a panic in one task is caught and logged, and the other tasks continue.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use cowhand_core::duration;
use futures_util::FutureExt;
use tokio::task::JoinError;
use tracing::error;

/// Delay before a loop that panicked is restarted.
const RESTART_DELAY: Duration = Duration::from_secs(5);

/// Message of a panic, which follows the name of the task.
#[derive(Debug, thiserror::Error)]
#[error("panicked: {0}")]
pub struct Panicked(String);

/// Runs a future and returns its result or the message of its panic. After a panic, state that the future used may be
/// inconsistent and must not be used again.
pub fn caught<T>(work: impl Future<Output = T>) -> impl Future<Output = Result<T, Panicked>> {
    // Boxed, so that the caller's future stays small.
    let work = Box::pin(work);
    async move {
        AssertUnwindSafe(work).catch_unwind().await.map_err(|payload| Panicked(panic_message(&*payload)))
    }
}

/// Runs a loop, and restarts it `RESTART_DELAY` after a panic. Returns when the loop ends.
pub async fn restart_on_panic<F: Future<Output = ()>>(what: &str, begin: impl Fn() -> F) {
    while let Err(panicked) = caught(begin()).await {
        error!("{what} {panicked}; it is restarted in {}", duration::exact(RESTART_DELAY));
        tokio::time::sleep(RESTART_DELAY).await;
    }
}

/// Logs the panic of an ended task, if the task panicked.
pub fn log_panic(what: &str, ended: Result<(), JoinError>) {
    if let Some(payload) = ended.err().and_then(|error| error.try_into_panic().ok()) {
        error!("{what} {}", Panicked(panic_message(&*payload)));
    }
}

fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message").to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test]
    async fn the_message_of_a_panic_is_kept() {
        assert_eq!(caught(async { 1 }).await.unwrap(), 1);
        let number = 7;
        let message =
            caught(async { assert_eq!(number, 8, "no such number") }).await.unwrap_err().to_string();
        assert!(message.starts_with("panicked: ") && message.contains("no such number"), "{message}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_is_restarted_after_each_panic() {
        let begun = AtomicU32::new(0);
        restart_on_panic("it", || async {
            assert!(begun.fetch_add(1, Ordering::Relaxed) == 2, "not yet");
        })
        .await;
        assert_eq!(begun.load(Ordering::Relaxed), 3);
    }
}

//! Blocking work outside the threads of the async runtime.

use std::panic::resume_unwind;

/// Runs a function on a blocking thread. A panic there is propagated.
pub async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(thrown) => resume_unwind(thrown),
            // The runtime is shutting down, and the caller with it.
            Err(_) => std::future::pending().await,
        },
    }
}

//! Work that would hold up everybody who shares a thread.

use std::panic::resume_unwind;

/// On a thread where waiting holds nobody up. What panics there panics here.
pub async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(thrown) => resume_unwind(thrown),
            // The runtime ends, and whoever waits here ends with it.
            Err(_) => std::future::pending().await,
        },
    }
}

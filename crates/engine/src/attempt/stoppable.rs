//! The preparation of an attempt, which ends early if the attempt is stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

use crate::context::StopRequest;

/// Tells the steps of a preparation that the attempt is stopped.
#[derive(Debug, Clone)]
pub(super) struct Stoppable {
    stop_requests: watch::Receiver<StopRequest>,
    /// Set when the attempt is stopped. Commands that run on a blocking thread check it.
    flag: Arc<AtomicBool>,
}

impl Stoppable {
    pub(super) fn new(stop_requests: watch::Receiver<StopRequest>) -> Self {
        Self { stop_requests, flag: Arc::default() }
    }

    /// Returns the flag for commands, which end when it is set.
    pub(super) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.flag)
    }

    /// Runs the preparation to its end, and sets the flag when the attempt is stopped. The preparation is not dropped,
    /// because its commands have to end first.
    pub(super) async fn to_end<T>(&self, prepare: impl Future<Output = T>) -> T {
        let mut prepare = std::pin::pin!(prepare);
        tokio::select! {
            prepared = &mut prepare => return prepared,
            () = self.stopped() => {}
        }
        self.flag.store(true, Ordering::Relaxed);
        prepare.await
    }

    /// Runs a step that can be dropped. Returns none if the attempt is stopped first.
    pub(super) async fn unless_stopped<T>(&self, step: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.stopped() => None,
            result = step => Some(result),
        }
    }

    async fn stopped(&self) {
        let mut stop_requests = self.stop_requests.clone();
        if stop_requests.wait_for(|request| *request != StopRequest::Continue).await.is_err() {
            // Nobody can stop the attempt any more.
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stop_sets_the_flag_and_drops_only_some_steps() {
        let (requests, received) = watch::channel(StopRequest::Continue);
        let stoppable = Stoppable::new(received);
        assert_eq!(stoppable.unless_stopped(async { 1 }).await, Some(1));
        let flag = stoppable.flag();
        let step = async {
            requests.send_replace(StopRequest::Cancel);
            while !flag.load(Ordering::Relaxed) {
                tokio::task::yield_now().await;
            }
            2
        };
        assert_eq!(stoppable.to_end(step).await, 2);
        assert_eq!(stoppable.unless_stopped(async { 3 }).await, None);
    }
}

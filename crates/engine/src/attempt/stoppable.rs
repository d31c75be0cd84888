//! The preparation of an attempt, which ends early if the attempt is stopped or exceeds its timeout.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cowhand_core::moment::Moment;
use cowhand_system::clock::Clock;
use jiff::SignedDuration;
use tokio::sync::watch;

use super::start_error::StartError;
use crate::context::StopRequest;

/// Tells the steps of a preparation that they have to end.
#[derive(Debug, Clone)]
pub(super) struct Stoppable {
    stop_requests: watch::Receiver<StopRequest>,
    timeout: Option<PreparationTimeout>,
    /// Set when the preparation has to end. Commands that run on a blocking thread check it.
    flag: Arc<AtomicBool>,
}

/// The `timeout` of an attempt. It counts from the start of the attempt, so the preparation is a part of it.
#[derive(Debug, Clone)]
struct PreparationTimeout {
    clock: Clock,
    began: Moment,
    limit: SignedDuration,
}

impl PreparationTimeout {
    fn left(&self) -> SignedDuration {
        self.limit.saturating_sub(self.clock.moment().since(self.began))
    }

    async fn passed(&self) {
        loop {
            let left = self.left();
            if left.is_negative() {
                return;
            }
            // The clock counts in microseconds.
            let at = self.clock.now().checked_add(left + SignedDuration::from_micros(1));
            self.clock.wait_until(at.ok()).await;
        }
    }
}

impl Stoppable {
    pub(super) fn new(stop_requests: watch::Receiver<StopRequest>) -> Self {
        Self { stop_requests, timeout: None, flag: Arc::default() }
    }

    /// Sets the timeout of the attempt, which began at `began`. If `limit` is `None`, no timeout applies.
    pub(super) fn with_timeout(self, clock: &Clock, began: Moment, limit: Option<SignedDuration>) -> Self {
        let timeout = limit.map(|limit| PreparationTimeout { clock: clock.clone(), began, limit });
        Self { timeout, ..self }
    }

    /// Returns the flag for commands, which end when it is set.
    pub(super) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.flag)
    }

    /// Runs the preparation to its end, and sets the flag if the preparation has to end early. The preparation is not
    /// dropped, because its commands have to end first. After the timeout, its result does not count: the timeout may
    /// be the reason why a command failed.
    pub(super) async fn to_end<T>(
        &self,
        prepare: impl Future<Output = Result<T, StartError>>,
    ) -> Result<T, StartError> {
        let mut prepare = std::pin::pin!(prepare);
        let why = tokio::select! {
            prepared = &mut prepare => return prepared,
            why = self.ended() => why,
        };
        self.flag.store(true, Ordering::Relaxed);
        let prepared = prepare.await;
        match why {
            StartError::TookTooLong(_) => Err(why),
            _ => prepared,
        }
    }

    /// Runs a step that can be dropped. The error states why the preparation has to end.
    pub(super) async fn unless_stopped<T>(&self, step: impl Future<Output = T>) -> Result<T, StartError> {
        tokio::select! {
            biased;
            why = self.ended() => Err(why),
            result = step => Ok(result),
        }
    }

    /// Waits until the preparation has to end, and returns the reason.
    async fn ended(&self) -> StartError {
        let timed_out = async {
            match &self.timeout {
                Some(timeout) => {
                    timeout.passed().await;
                    StartError::TookTooLong(timeout.limit)
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.stopped() => StartError::Stopped,
            why = timed_out => why,
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
    use jiff::Timestamp;

    use super::*;

    /// Waits for the flag, as a command does.
    async fn until_set(flag: Arc<AtomicBool>) -> Result<i32, StartError> {
        while !flag.load(Ordering::Relaxed) {
            tokio::task::yield_now().await;
        }
        Ok(2)
    }

    #[tokio::test]
    async fn a_stop_sets_the_flag_and_drops_only_some_steps() {
        let (requests, received) = watch::channel(StopRequest::Continue);
        let stoppable = Stoppable::new(received);
        assert!(matches!(stoppable.unless_stopped(async { 1 }).await, Ok(1)));
        let flag = stoppable.flag();
        let step = async {
            requests.send_replace(StopRequest::Cancel);
            until_set(flag).await
        };
        assert!(matches!(stoppable.to_end(step).await, Ok(2)));
        assert!(matches!(stoppable.unless_stopped(async { 3 }).await, Err(StartError::Stopped)));
    }

    #[tokio::test]
    async fn the_timeout_counts_from_the_start_of_the_attempt() {
        let (_requests, received) = watch::channel(StopRequest::Continue);
        let clock = Clock::test(Timestamp::UNIX_EPOCH);
        let (began, limit) = (clock.moment(), SignedDuration::from_secs(60));
        clock.set(Timestamp::from_second(59).unwrap());
        // A step of the wall clock is no time that passes.
        clock.step(Timestamp::from_second(5_000).unwrap());
        let stoppable = Stoppable::new(received).with_timeout(&clock, began, Some(limit));
        assert!(matches!(stoppable.unless_stopped(async { 1 }).await, Ok(1)));
        let flag = stoppable.flag();
        let step = async {
            tokio::task::yield_now().await;
            clock.set(Timestamp::from_second(5_002).unwrap());
            until_set(flag).await
        };
        assert!(
            matches!(stoppable.to_end(step).await, Err(StartError::TookTooLong(found)) if found == limit)
        );
        assert!(matches!(stoppable.unless_stopped(async { 3 }).await, Err(StartError::TookTooLong(_))));
    }
}

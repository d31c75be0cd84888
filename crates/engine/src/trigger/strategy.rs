//! The interface between a strategy and its runner: the strategy waits, and passes on tasks.

use std::time::Duration;

use async_trait::async_trait;
use cowhand_core::backoff::Backoff;
use cowhand_core::duration;
pub use cowhand_core::trigger::Task;
use jiff::SignedDuration;
use tokio::sync::watch;

/// The wait after errors of a trigger: two seconds for each error in a row, at most thirty seconds.
pub(crate) const ERROR_BACKOFF: Backoff =
    Backoff::linear(SignedDuration::from_secs(2), SignedDuration::from_secs(30));

/// *When* a schedule fires: a strategy is responsible for timing and shutdown, and starts no agents or jobs.
///
/// The runner dispatches all returned tasks, in order, before the next call. The `source_id` of a task identifies the
/// task, so that no task fires twice; [`Self::is_listing`] describes the exception. The future of `next_tasks` may be
/// dropped while it waits.
#[async_trait]
pub trait TriggerStrategy: Send + Sync {
    /// Waits for tasks. An empty list is a valid answer: the runner calls again.
    ///
    /// The first error of a series is logged and shown, and the runner calls again after a wait. After a
    /// [`FatalTriggerError`] the runner ends. Once `shutdown` is true, or its sender is dropped, the call returns
    /// `Ok(vec![])` without delay; [`stopped`] waits for that moment.
    async fn next_tasks(&mut self, shutdown: &watch::Receiver<bool>) -> anyhow::Result<Vec<Task>>;

    /// Returns whether each answer is a complete list. If so, a task that disappears and comes back is a new task.
    fn is_listing(&self) -> bool {
        false
    }
}

/// *What* a schedule fires for: a source makes the requests to the outside, and is not responsible for timing.
#[async_trait]
pub trait TaskSource: Send + Sync {
    /// Returns everything that exists now, the oldest first. The future is dropped when the fleet stops, or when the
    /// fetch takes too long.
    async fn fetch_tasks(&self) -> anyhow::Result<Vec<Task>>;

    /// Returns the type of the trigger, as `type:` in the config names it.
    fn source_type(&self) -> &'static str;
}

/// Waits until the shutdown is signalled or its sender is dropped. Returns at once if that has already happened.
pub async fn stopped(shutdown: &watch::Receiver<bool>) {
    // An error means that the sender was dropped.
    let _ = shutdown.clone().wait_for(|stop| *stop).await;
}

pub fn is_stopped(shutdown: &watch::Receiver<bool>) -> bool {
    *shutdown.borrow() || shutdown.has_changed().is_err()
}

/// An error that another try cannot fix, so that a person has to act. If an error has a `FatalTriggerError` as its
/// context or as a cause, the schedule gets the state `error` with this reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FatalTriggerError(pub String);

/// A wait that the polled system asked for. If an error has a `RetryAfter` as its context or as a cause, this wait
/// replaces every other wait before the next try.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("asked to wait {}", duration::rounded_from_seconds(.0.as_secs()))]
pub struct RetryAfter(pub Duration);

/// Returns the `T` that an error has as its context or as one of its causes, for example a [`RetryAfter`].
pub fn find_in_error<T: std::error::Error + Send + Sync + 'static>(error: &anyhow::Error) -> Option<&T> {
    error.downcast_ref().or_else(|| error.chain().find_map(|cause| cause.downcast_ref()))
}

/// Context of an error whose strategy itself waits before the next try. The runner then calls again without a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("cannot fetch")]
pub struct Paced;

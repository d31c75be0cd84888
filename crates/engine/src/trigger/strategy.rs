//! What a trigger is to the runner: something that waits, and hands on tasks.

use std::time::Duration;

use async_trait::async_trait;
pub use cowhand_core::trigger::Task;
use tokio::sync::watch;

/// *When*: it owns timing and shutdown, and knows nothing of agents or jobs.
///
/// The runner dispatches every task of an answer, in order, before it asks again; a task's `source_id` tells it from
/// every other, so that none is dispatched twice. `next_tasks` may be dropped while it waits.
#[async_trait]
pub trait TriggerStrategy: Send + Sync {
    /// Waits for what the trigger is about. Nothing is an answer, too: the runner asks again.
    ///
    /// An error is logged and shown, and after a while the runner asks again; [`FatalTriggerError`] ends that. Once
    /// `shutdown` is true, or nobody can make it true any more, it answers `Ok(vec![])` without delay; [`stopped`]
    /// waits for that.
    async fn next_tasks(&mut self, shutdown: &watch::Receiver<bool>) -> anyhow::Result<Vec<Task>>;

    /// Each answer is all that there is now. Then a task that is gone for a while and comes back is a new one.
    fn is_listing(&self) -> bool {
        false
    }
}

/// *What*: it owns the call to the outside, and knows nothing of timing.
#[async_trait]
pub trait TaskSource: Send + Sync {
    /// All that there is now, the oldest first. Dropped when the fleet stops.
    async fn fetch_tasks(&self) -> anyhow::Result<Vec<Task>>;

    /// The word behind `type:`.
    fn source_type(&self) -> &'static str;
}

/// Until the shutdown is signalled, also if it was long ago, or if its sender is gone.
pub async fn stopped(shutdown: &watch::Receiver<bool>) {
    // An error means that the sender is gone.
    let _ = shutdown.clone().wait_for(|stop| *stop).await;
}

pub fn is_stopped(shutdown: &watch::Receiver<bool>) -> bool {
    *shutdown.borrow() || shutdown.has_changed().is_err()
}

/// Trying again cannot help: a person has to mend something. Anywhere in the chain of an error, it puts the schedule
/// into the state `error` with this reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FatalTriggerError(pub String);

/// The outside asked us to come back later; anywhere in the chain of an error, it takes the place of any other wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("asked to wait {}s", .0.as_secs())]
pub struct RetryAfter(pub Duration);

/// A marker in an error: as its context, or among its causes.
pub fn marker<T: std::error::Error + Send + Sync + 'static>(error: &anyhow::Error) -> Option<&T> {
    error.downcast_ref().or_else(|| error.chain().find_map(|cause| cause.downcast_ref()))
}

/// The strategy itself waits before it tries again, so nobody else has to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("cannot fetch")]
pub struct Paced;

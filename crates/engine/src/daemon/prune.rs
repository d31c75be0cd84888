//! Prunes jobs and sweeps workspaces and containers at regular intervals.

use std::sync::Arc;

use cowhand_core::backoff::Backoff;
use cowhand_core::interval::Interval;
use jiff::{SignedDuration, Timestamp};
use tokio::task::AbortHandle;
use tracing::{info, warn};

use super::Daemon;
use super::{containers, notifications};
use crate::attempt::workspaces;
use crate::context::Engine;
use crate::prune::{self, PruneScope};

const PRUNE_EVERY: SignedDuration = SignedDuration::from_hours(1);

/// Time for which the records of handled chat messages are kept, so that the messages are not handled again. It is
/// longer if the `max_lateness` of a schedule is longer.
const CHAT_MESSAGES_KEPT: SignedDuration = SignedDuration::from_hours(30 * 24);
/// Time for which the records of ended answers are kept, so that an agent continues a thread without a mention.
const CHAT_ANSWERS_KEPT: SignedDuration = SignedDuration::from_hours(90 * 24);

#[derive(Debug, Default)]
pub(super) struct Pruning {
    last: Option<Timestamp>,
    task: Option<AbortHandle>,
}

/// Pauses between two tries to finish workspaces.
const UNFINISHED_BACKOFF: Backoff =
    Backoff::doubling(SignedDuration::from_secs(1), SignedDuration::from_secs(30));

/// The sweeps of workspaces and containers.
#[derive(Debug, Default)]
pub(super) struct Sweeping {
    last: Option<Timestamp>,
    /// Set while a workspace is unfinished.
    retries: Option<Retries>,
}

#[derive(Debug)]
struct Retries {
    count: u32,
    last: Timestamp,
    task: Option<AbortHandle>,
}

impl Retries {
    const fn starting(now: Timestamp) -> Self {
        Self { count: 1, last: now, task: None }
    }
}

impl Pruning {
    /// Returns whether pruning is due. It is also due after the clock was set back.
    fn is_due(&self, now: Timestamp) -> bool {
        self.last.is_none_or(|last| now < last || now.duration_since(last) >= PRUNE_EVERY)
    }

    /// Stops pruning. The next pruning completes it.
    pub(super) fn stop(&self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Daemon {
    /// Starts pruning in its own task, so that a large folder does not delay jobs. Does nothing if the fleet keeps
    /// everything.
    pub(super) fn prune_if_due(&mut self) {
        let now = self.engine.clock.now();
        if self.pruning.is_due(now) && !self.engine.loaded().roster.keeps_everything() {
            let task = self.tasks.spawn(prune_now(Arc::clone(&self.engine), now));
            self.pruning = Pruning { last: Some(now), task: Some(task) };
        }
    }
}

impl Daemon {
    /// Sweeps unneeded workspaces and containers and the records of old chats, in their own tasks, at the start and then
    /// every [`PRUNE_EVERY`].
    pub(super) fn sweep_if_due(&mut self) {
        let now = self.engine.clock.now();
        if self.sweeping.last.is_none_or(|last| now < last || now.duration_since(last) >= PRUNE_EVERY) {
            self.sweeping.last = Some(now);
            self.background.spawn(workspaces::sweep(Arc::clone(&self.engine)));
            self.background.spawn(containers::sweep(Arc::clone(&self.engine)));
            self.background.spawn(forget_chats(Arc::clone(&self.engine)));
            self.background.spawn(notifications::forget_old(Arc::clone(&self.engine)));
        }
    }

    /// Tries again to finish workspaces, with growing pauses. Returns the time of the next try; `None` while a try
    /// runs, or if no workspace is unfinished.
    pub(super) fn retry_unfinished_if_due(&mut self) -> Option<Timestamp> {
        if self.engine.unfinished.is_empty() {
            self.sweeping.retries = None;
            return None;
        }
        let now = self.engine.clock.now();
        let Retries { count, last, task } = self.sweeping.retries.get_or_insert(Retries::starting(now));
        // The end of the task wakes the loop.
        if task.as_ref().is_some_and(|task| !task.is_finished()) {
            return None;
        }
        let due = *last + UNFINISHED_BACKOFF.after(*count);
        if *last <= now && now < due {
            return Some(due);
        }
        (*count, *last) = (count.saturating_add(1), now);
        *task = Some(self.background.spawn(workspaces::retry(Arc::clone(&self.engine))));
        None
    }
}

async fn prune_now(engine: Arc<Engine>, now: Timestamp) {
    let (store, state, loaded) = (&engine.store, &engine.home.state, engine.loaded());
    let pruned = async {
        let excess = PruneScope::default().excess(store, state, &loaded.roster, now).await?;
        prune::prune(store, state, excess, now).await
    };
    match pruned.await {
        Ok(jobs) if jobs.is_empty() => {}
        Ok(jobs) => info!(jobs = jobs.len(), "pruned according to `retention`"),
        Err(error) => warn!("cannot prune: {error:#}"),
    }
}

/// Removes the records of old chats.
async fn forget_chats(engine: Arc<Engine>) {
    let now = engine.clock.now();
    let roster = &engine.loaded().roster;
    let schedules = roster.agents.iter().flat_map(|agent| &agent.schedules);
    let lateness =
        schedules.filter_map(|schedule| schedule.timing.max_lateness.map(Interval::duration)).max();
    let messages_kept = CHAT_MESSAGES_KEPT.max(lateness.unwrap_or_default());
    let before = |kept| now.checked_sub(kept).unwrap_or(Timestamp::MIN);
    let forgotten = async {
        engine.store.forget_chat_messages(before(messages_kept)).await?;
        engine.store.forget_chat_answers(before(CHAT_ANSWERS_KEPT)).await
    };
    if let Err(error) = forgotten.await {
        warn!("cannot remove the records of old chats: {error}");
    }
}

//! Follows the event log: opens and ends incidents, and writes the notifications about them. Everything is in the
//! store, so the loop can be stopped and started again at any time. Every node follows the log; the cursor in the store
//! decides which node follows an event.

use std::sync::Arc;
use std::time::Duration;

use cowhand_core::roster::Roster;
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;
use tracing::warn;

use crate::context::Engine;
use cowhand_store::{FollowReason, StoreError};
use cowhand_system::fault;

/// Shortest time between two reads of the log, so that many events share a transaction.
const FOLLOW_PAUSE: Duration = Duration::from_millis(200);
/// Longest time between two reads, because other nodes write to the same log without a signal to this node.
const MAX_FOLLOW_WAIT: SignedDuration = SignedDuration::from_secs(15);
const FOLLOW_RETRY_AFTER: Duration = Duration::from_secs(5);
/// Shortest time between two looks at the budgets.
const BUDGET_PAUSE: Duration = Duration::from_secs(2);
/// Longest time between two looks at the budgets, because running agents spend too.
const MAX_BUDGET_WAIT: Duration = Duration::from_mins(1);

pub(super) async fn follow_log(engine: Arc<Engine>) {
    let mut follower = Follower { engine, roster: None, budgets_at: None, has_spent: true };
    loop {
        let committed = follower.engine.store.committed();
        match follower.follow().await {
            Ok(next_at) => follower.wait(committed, next_at).await,
            Err(error) => {
                warn!("cannot follow the events for notifications: {error}");
                tokio::time::sleep(FOLLOW_RETRY_AFTER).await;
            }
        }
    }
}

struct Follower {
    engine: Arc<Engine>,
    /// The config with which the log was followed last; `None` at the start.
    roster: Option<Arc<Roster>>,
    /// Time of the last look at the budgets.
    budgets_at: Option<Instant>,
    /// True if an attempt has ended since then.
    has_spent: bool,
}

impl Follower {
    /// Follows all new events. Returns the time at which something is due without an event.
    async fn follow(&mut self) -> Result<Option<Timestamp>, StoreError> {
        let roster = Arc::clone(&self.engine.loaded().roster);
        let is_new = self.roster.as_ref().is_none_or(|known| !Arc::ptr_eq(known, &roster));
        let now = self.engine.clock.now();
        if !roster.notifications.is_on() {
            if is_new {
                self.engine.store.stop_following(now).await?;
                self.roster = Some(roster);
            }
            return Ok(None);
        }
        self.record_budgets(&roster).await?;
        let mut reason = if is_new { FollowReason::Start } else { FollowReason::Events };
        loop {
            let store = &self.engine.store;
            let followed =
                store.follow_incidents(Arc::clone(&roster), reason, self.engine.clock.now()).await?;
            self.has_spent |= followed.has_ended_attempts;
            if followed.has_notifications {
                fault::point("incidents_followed");
                self.engine.notifications.notify_one();
            }
            if !followed.has_more {
                if is_new {
                    // A changed config may have corrected a target.
                    store.retry_notifications(Arc::clone(&roster), now).await?;
                    self.engine.notifications.notify_one();
                }
                self.roster = Some(roster);
                return Ok(followed.next_at);
            }
            if self.roster.is_some() {
                reason = FollowReason::Events;
            }
        }
    }

    /// Records which budgets are spent to 80 or 100 percent, after attempts have ended and at regular intervals.
    async fn record_budgets(&mut self, roster: &Arc<Roster>) -> Result<(), StoreError> {
        let wait = if self.has_spent { BUDGET_PAUSE } else { MAX_BUDGET_WAIT };
        if self.budgets_at.is_some_and(|at| at.elapsed() < wait) {
            return Ok(());
        }
        self.engine.store.record_budget_levels(Arc::clone(roster), self.engine.clock.now()).await?;
        (self.budgets_at, self.has_spent) = (Some(Instant::now()), false);
        Ok(())
    }

    /// Waits for a new event, for a changed config, or until something is due.
    async fn wait(&self, committed: i64, next_at: Option<Timestamp>) {
        tokio::time::sleep(FOLLOW_PAUSE).await;
        let engine = &self.engine;
        let now = engine.clock.now();
        let latest = now.checked_add(MAX_FOLLOW_WAIT).unwrap_or(Timestamp::MAX);
        let wake_at = next_at.map_or(latest, |at| at.min(latest));
        let budgets_at = self.budgets_at.filter(|_| self.has_spent).map(|at| at + BUDGET_PAUSE);
        let budgets = async {
            match budgets_at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let news = async {
            while engine.store.committed() <= committed {
                engine.store.changed(committed).await;
            }
        };
        tokio::select! {
            () = engine.clock.wait_until(Some(wake_at)) => {}
            () = budgets => {}
            () = news => {}
            () = engine.incidents.notified() => {}
        }
    }
}

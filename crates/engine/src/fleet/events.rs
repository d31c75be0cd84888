//! Subscriptions to the events of the fleet. They read the store, so that a slow reader misses nothing.

use std::collections::VecDeque;

use cowhand_core::event::Event;
use tokio::sync::watch;

use super::{Fleet, FleetError};
use cowhand_store::Store;

/// All events after a position in the log, each once and in order.
#[derive(Debug)]
pub struct Subscription {
    store: Store,
    ended: watch::Receiver<bool>,
    after: i64,
    page: VecDeque<Event>,
}

/// Number of events that are read at once.
const EVENTS_PER_READ: u32 = 100;

impl Fleet {
    /// Subscribes to the events from now on.
    pub async fn subscribe(&self) -> Result<Subscription, FleetError> {
        let last = self.store().last_event().await?;
        Ok(self.subscribe_after(last))
    }

    /// Subscribes to the events after `seq`, past and future.
    pub fn subscribe_after(&self, seq: i64) -> Subscription {
        let (store, ended) = (self.store().clone(), self.ended.clone());
        Subscription { store, ended, after: seq, page: VecDeque::new() }
    }
}

impl Subscription {
    /// Returns the next event, or `None` once the fleet has ended. The future can be dropped while it waits; the next
    /// call continues at the same event.
    pub async fn next(&mut self) -> Result<Option<Event>, FleetError> {
        loop {
            if let Some(event) = self.page.pop_front() {
                self.after = event.seq;
                return Ok(Some(event));
            }
            // Check for the end before reading, so that events before the end are not missed.
            let ended = *self.ended.borrow() || self.ended.has_changed().is_err();
            let events = self.store.events_after(self.after, EVENTS_PER_READ).await?;
            self.page = self.store.with_jobs(events).await?.into();
            if self.page.is_empty() {
                if ended {
                    return Ok(None);
                }
                tokio::select! {
                    () = self.store.changed(self.after) => {}
                    // An error means that the fleet's task has dropped the sender, which also ends the wait.
                    _ = self.ended.changed() => {}
                }
            }
        }
    }
}

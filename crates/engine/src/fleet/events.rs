//! What happens in the fleet, for whoever wants to know: from the store, so that nobody who is slow misses anything.

use std::collections::VecDeque;

use cowhand_core::event::Event;
use tokio::sync::watch;

use super::{Fleet, FleetError};
use cowhand_store::Store;

/// Everything from one place in the log on, each once and in order.
#[derive(Debug)]
pub struct Subscription {
    store: Store,
    ended: watch::Receiver<bool>,
    after: i64,
    page: VecDeque<Event>,
}

/// Events read together.
const PAGE: u32 = 100;

impl Fleet {
    /// What happens from now on.
    pub async fn subscribe(&self) -> Result<Subscription, FleetError> {
        let last = self.store().last_event().await?;
        Ok(self.subscribe_after(last))
    }

    /// What happened after `seq`, and then what happens.
    pub fn subscribe_after(&self, seq: i64) -> Subscription {
        let (store, ended) = (self.store().clone(), self.ended.clone());
        Subscription { store, ended, after: seq, page: VecDeque::new() }
    }
}

impl Subscription {
    /// The next event; none once the fleet has ended. May be dropped while it waits: the next call goes on there.
    pub async fn next(&mut self) -> Result<Option<Event>, FleetError> {
        loop {
            if let Some(event) = self.page.pop_front() {
                self.after = event.seq;
                return Ok(Some(event));
            }
            // First whether it has ended, then what happened: so nothing that happened before is missed.
            let ended = *self.ended.borrow() || self.ended.has_changed().is_err();
            let events = self.store.events_after(self.after, PAGE).await?;
            self.page = self.store.with_jobs(events).await?.into();
            if self.page.is_empty() {
                if ended {
                    return Ok(None);
                }
                tokio::select! {
                    () = self.store.changed(self.after) => {}
                    // Also if nobody is left to say that it has.
                    _ = self.ended.changed() => {}
                }
            }
        }
    }
}

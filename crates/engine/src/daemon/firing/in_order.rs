//! Prepares the firings of one schedule one after another, in their order.
//!
//! Each schedule with such firings has its own task, so that a slow schedule does not delay others. A firing that
//! cannot be prepared delays the later firings, so that they do not overtake it while a source is unavailable. After
//! too many failed tries, the firing no longer delays the later firings.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use cowhand_core::backoff::Backoff;
use cowhand_core::id::ScheduleId;
use cowhand_core::trigger::FiringKey;
use jiff::SignedDuration;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::warn;

use super::prepare::{Preparer, Step};
use crate::context::Engine;
use crate::loaded::Loaded;
use cowhand_store::MAX_BLOCKING_TRIES;

const FIRST_PREPARE_PAUSE: Duration = Duration::from_secs(1);
const PREPARE_BACKOFF: Backoff =
    Backoff::doubling(SignedDuration::from_secs(1), SignedDuration::from_mins(1));

/// Prepares the firings of the schedule until none is left. `new_firings` signals that there are more.
pub(in crate::daemon) async fn prepare_in_order(
    engine: Arc<Engine>,
    schedule: ScheduleId,
    new_firings: Arc<Notify>,
) {
    let mut queue = FiringQueue { engine: &engine, schedule, stuck: HashMap::new() };
    while let Some(retry_at) = queue.prepare_all().await {
        tokio::select! {
            () = tokio::time::sleep_until(retry_at) => {}
            () = new_firings.notified() => {}
        }
    }
    engine.prepared(schedule);
}

struct FiringQueue<'a> {
    engine: &'a Engine,
    schedule: ScheduleId,
    /// Firings that could not be prepared.
    stuck: HashMap<FiringKey, Stuck>,
}

#[derive(Debug, Clone)]
struct Stuck {
    retry_at: Instant,
    /// Config of the last try. With another config the firing is tried again at once.
    config: Weak<Loaded>,
    /// True if later firings wait for this one.
    blocks_later: bool,
}

impl FiringQueue<'_> {
    /// Prepares the firings that can be prepared now. Returns the time of the next try, if some firings are left.
    async fn prepare_all(&mut self) -> Option<Instant> {
        let firings = match self.engine.store.to_prepare(self.schedule).await {
            Ok(firings) => firings,
            Err(error) => {
                warn!("cannot read which firings are to be prepared: {error}");
                return Some(Instant::now() + FIRST_PREPARE_PAUSE);
            }
        };
        self.stuck.retain(|key, _| firings.contains(key));
        let config = Arc::downgrade(&self.engine.loaded());
        let mut next: Option<Instant> = None;
        for key in firings {
            let stuck = match self.stuck.get(&key) {
                Some(stuck) if stuck.retry_at > Instant::now() && stuck.config.ptr_eq(&config) => {
                    Some(stuck.clone())
                }
                _ => self.prepare(&key).await,
            };
            if let Some(stuck) = stuck {
                next = Some(next.map_or(stuck.retry_at, |next| next.min(stuck.retry_at)));
                if stuck.blocks_later {
                    break;
                }
            }
        }
        next
    }

    async fn prepare(&mut self, key: &FiringKey) -> Option<Stuck> {
        let config = Arc::downgrade(&self.engine.loaded());
        let preparer = Preparer { engine: self.engine, schedule: self.schedule, key };
        let stuck = match preparer.try_to_run().await {
            Step::Done => {
                self.stuck.remove(key);
                return None;
            }
            Step::Elsewhere => {
                Stuck { retry_at: Instant::now() + FIRST_PREPARE_PAUSE, config, blocks_later: true }
            }
            Step::Failed { error, tries, wait } => {
                self.record_failure(key, &error).await;
                let retry_at = Instant::now() + wait.unwrap_or_else(|| PREPARE_BACKOFF.wait_after(tries));
                Stuck { retry_at, config, blocks_later: tries < MAX_BLOCKING_TRIES }
            }
        };
        self.stuck.insert(key.clone(), stuck.clone());
        Some(stuck)
    }

    async fn record_failure(&self, key: &FiringKey, error: &anyhow::Error) {
        let message = format!("{error:#}");
        warn!(firing = %key, "cannot prepare the firing now: {message}");
        let now = self.engine.clock.now();
        if let Err(error) = self.engine.store.record_delay(self.schedule, Some(message), now).await {
            warn!("cannot store why the firing cannot be prepared: {error}");
        }
    }
}

//! Sends notifications. They are in the store, and a node takes each of them with a lease, so the loop can be stopped
//! and started again at any time. A notification never delays a job.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cowhand_core::backoff::Backoff;
use cowhand_core::notification::NotificationKind;
use jiff::{SignedDuration, Timestamp};
use tokio::task::JoinSet;
use tracing::{error, info, warn};

use crate::context::Engine;
use crate::notification::{self, SendError};
use cowhand_store::{NOTIFICATION_LEASE, NotificationEnd, NotificationRecord, StoreError};
use cowhand_system::fault;
use cowhand_system::panic::{self, caught};

/// Largest number of notifications that are sent at the same time.
const PARALLEL_NOTIFICATIONS: usize = 8;
/// Longest time between two searches for due notifications.
const MAX_SEND_WAIT: SignedDuration = SignedDuration::from_mins(1);
const SEND_RETRY_AFTER: SignedDuration = SignedDuration::from_secs(5);
const NOTIFICATION_BACKOFF: Backoff =
    Backoff::quadrupling(SignedDuration::from_secs(2), SignedDuration::from_mins(10));
/// Time for which a notification is tried. After that it has failed.
const NOTIFICATION_TRIED_FOR: SignedDuration = SignedDuration::from_hours(3 * 24);
/// Time for which the records of notifications that have ended are kept.
const NOTIFICATIONS_KEPT: SignedDuration = SignedDuration::from_hours(14 * 24);

pub(super) async fn send_notifications(engine: Arc<Engine>) {
    // Take up the notifications that an earlier daemon was sending, or this loop before it panicked.
    if let Err(error) = engine.store.take_up_notifications(engine.home.node.clone(), engine.clock.now()).await
    {
        warn!("notifications that were being sent wait until their lease is over: {error}");
    }
    if let Err(error) = notification::clear_inputs(&engine.home.state) {
        warn!("the input of notification commands of an earlier daemon is still there: {error}");
    }
    let mut sending = JoinSet::new();
    loop {
        let wake_at = match begin_due(&engine, &mut sending).await {
            Ok(wake_at) => wake_at,
            Err(error) => {
                warn!("cannot read the notifications to send: {error}");
                in_future(&engine, SEND_RETRY_AFTER)
            }
        };
        tokio::select! {
            () = engine.clock.wait_until(Some(wake_at)) => {}
            () = engine.notifications.notified() => {}
            Some(ended) = sending.join_next() => panic::log_panic("a notification", ended),
        }
    }
}

/// Begins to send the notifications that are due, and returns the time of the next call.
async fn begin_due(engine: &Arc<Engine>, sending: &mut JoinSet<()>) -> Result<Timestamp, StoreError> {
    let store = &engine.store;
    store.group_notifications(engine.clock.now()).await?;
    // A daemon that ends begins nothing that it cannot complete.
    while !engine.is_ending.load(Ordering::Relaxed) && sending.len() < PARALLEL_NOTIFICATIONS {
        let taken = store.take_notification(engine.home.node.clone(), engine.clock.now()).await?;
        let Some(taken) = taken else {
            let next = store.next_notification_time().await?.unwrap_or(Timestamp::MAX);
            return Ok(next.clamp(engine.clock.now(), in_future(engine, MAX_SEND_WAIT)));
        };
        fault::point("notification_taken");
        engine.sending.fetch_add(1, Ordering::Relaxed);
        let engine = Arc::clone(engine);
        sending.spawn(async move {
            send(&engine, taken).await;
            engine.sending.fetch_sub(1, Ordering::Relaxed);
        });
    }
    // The end of a try wakes the loop.
    Ok(in_future(engine, MAX_SEND_WAIT))
}

async fn send(engine: &Engine, taken: NotificationRecord) {
    let lease = Duration::try_from(NOTIFICATION_LEASE).unwrap_or_default();
    let tried = tokio::time::timeout(lease, notification::send(engine, &taken));
    let result = match caught(tried).await {
        Ok(Ok(result)) => result,
        // The lease is over, so another node may send it now.
        Ok(Err(_)) => return,
        Err(panicked) => {
            error!(notification = taken.id, "it {panicked}");
            Err(SendError { reason: panicked.to_string(), retry_after: None, is_unknown_target: false })
        }
    };
    fault::point("notification_sent");
    if let Err(error) = store_result(engine, &taken, result).await {
        // The lease ends, and then the notification is taken again and recognised as a repetition.
        warn!(notification = taken.id, "cannot store the result of sending it: {error}");
    }
    fault::point("notification_settled");
}

async fn store_result(
    engine: &Engine,
    taken: &NotificationRecord,
    result: Result<(), SendError>,
) -> Result<(), StoreError> {
    let (store, now, target) = (&engine.store, engine.clock.now(), &taken.target);
    let Err(SendError { reason, retry_after, is_unknown_target }) = result else {
        info!(notification = taken.id, target, "sent: {}", taken.message.title);
        return store.end_notification(taken, NotificationEnd::Sent, now).await;
    };
    if is_unknown_target {
        info!(notification = taken.id, target, "dropped: {reason}");
        return store.end_notification(taken, NotificationEnd::Dropped { reason }, now).await;
    }
    let is_over = now.duration_since(taken.created_at) >= NOTIFICATION_TRIED_FOR;
    if is_over || taken.kind == NotificationKind::Test {
        warn!(notification = taken.id, target, "could not be delivered: {reason}");
        return store.end_notification(taken, NotificationEnd::Failed { reason }, now).await;
    }
    let retry_after = retry_after.and_then(|pause| SignedDuration::try_from(pause).ok());
    let retry_at = in_future(engine, retry_after.unwrap_or_else(|| NOTIFICATION_BACKOFF.after(taken.tries)));
    warn!(notification = taken.id, target, "could not be delivered; next try at {retry_at:.0}: {reason}");
    store.postpone_notification(taken, reason, retry_at).await
}

/// Removes the records of old notifications and incidents.
pub(super) async fn forget_old(engine: Arc<Engine>) {
    let before = engine.clock.now().checked_sub(NOTIFICATIONS_KEPT).unwrap_or(Timestamp::MIN);
    if let Err(error) = engine.store.forget_notifications(before).await {
        warn!("cannot remove the records of old notifications: {error}");
    }
}

fn in_future(engine: &Engine, time: SignedDuration) -> Timestamp {
    engine.clock.now().checked_add(time).unwrap_or(Timestamp::MAX)
}

//! The messages that are being handled. An edit or a deletion waits until the handling of its message has ended.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(super) struct MessagesInHandling {
    ids: Mutex<HashSet<String>>,
    ended: Notify,
}

/// The handling of one message. It lasts until this value is dropped.
#[derive(Debug)]
pub(super) struct HandlingTurn<'a> {
    messages: &'a MessagesInHandling,
    id: String,
}

impl MessagesInHandling {
    pub(super) fn begin(&self, id: &str) -> HandlingTurn<'_> {
        self.lock().insert(id.to_owned());
        HandlingTurn { messages: self, id: id.to_owned() }
    }

    /// Waits until the message is not being handled.
    pub(super) async fn until_ended(&self, id: &str) {
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            ended.as_mut().enable();
            if !self.lock().contains(id) {
                return;
            }
            ended.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<String>> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for HandlingTurn<'_> {
    fn drop(&mut self) {
        self.messages.lock().remove(&self.id);
        self.messages.ended.notify_waiters();
    }
}

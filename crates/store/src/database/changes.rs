//! Notifies the readers of the event log about new events. On PostgreSQL, one reader polls for events of other
//! processes, so that the other readers need not poll.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, watch};

use crate::{Database, Store};

/// Time between two polls of PostgreSQL for events of other processes. One reader polls for all readers.
const POSTGRES_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Time after which readers of SQLite read again. Only one process writes to SQLite, so this poll matters only if that
/// rule is broken.
const SQLITE_POLL_INTERVAL: Duration = Duration::from_secs(5);

/// The newest event that this process knows.
#[derive(Debug, Clone)]
pub(crate) struct Committed {
    /// Number of the newest event; 0 before the first event.
    newest: watch::Sender<i64>,
    /// Lock of the reader that polls for all readers.
    poll_lock: Arc<Mutex<()>>,
}

impl Committed {
    pub(crate) fn new() -> Self {
        Self { newest: watch::Sender::new(0), poll_lock: Arc::default() }
    }

    /// Records the number of a committed event. Called after the commit, so that readers that wake up find the event.
    /// Calls may arrive out of order; the highest number stays.
    pub(crate) fn advance(&self, seq: i64) {
        self.newest.send_if_modified(|newest| {
            let is_newer = seq > *newest;
            *newest = seq.max(*newest);
            is_newer
        });
    }
}

impl Store {
    /// Returns the number of the newest known event, for [`Self::changed`]. Call this before reading events, so that no
    /// event is missed.
    pub fn committed(&self) -> i64 {
        *self.committed.newest.borrow()
    }

    /// Waits until there is an event after `after`, or until the caller has to read again.
    pub async fn changed(&self, after: i64) {
        let mut newest = self.committed.newest.subscribe();
        // The caller reads in both cases.
        tokio::select! {
            _ = newest.wait_for(|newest| *newest > after) => {}
            () = self.poll_for_events() => {}
        }
    }

    /// On PostgreSQL, polls for all waiting readers; when this reader ends, the next reader takes over. Returns after
    /// an error. On SQLite, returns after [`SQLITE_POLL_INTERVAL`].
    async fn poll_for_events(&self) {
        if matches!(self.database, Database::Sqlite { .. }) {
            return tokio::time::sleep(SQLITE_POLL_INTERVAL).await;
        }
        let _guard = self.committed.poll_lock.lock().await;
        loop {
            tokio::time::sleep(POSTGRES_POLL_INTERVAL).await;
            match self.last_event().await {
                Ok(seq) => self.committed.advance(seq),
                // The caller reads and gets the error.
                Err(_) => return,
            }
        }
    }
}

//! Notification of readers of the event log, so that they need not poll.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, watch};

use crate::{Database, Store};

/// How often PostgreSQL is polled for events of other processes. One reader polls for all.
const POSTGRES_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// How often readers of SQLite look again. Only one process writes, so this covers only a violation of that rule.
const SQLITE_POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Number of the newest event that this process knows, 0 before the first.
#[derive(Debug, Clone)]
pub(crate) struct Committed {
    newest: watch::Sender<i64>,
    /// Held by the reader that polls for others.
    looking: Arc<Mutex<()>>,
}

impl Committed {
    pub(crate) fn new() -> Self {
        Self { newest: watch::Sender::new(0), looking: Arc::default() }
    }

    /// Records a committed event. Called after the commit, so that readers that wake up find it. Commits may arrive in
    /// either order; the highest number stays.
    pub(crate) fn reached(&self, seq: i64) {
        self.newest.send_if_modified(|newest| {
            let newer = seq > *newest;
            *newest = seq.max(*newest);
            newer
        });
    }
}

impl Store {
    /// Returns the newest known event, for [`Self::changed`]. Call it before reading, so that no event is missed.
    pub fn committed(&self) -> i64 {
        *self.committed.newest.borrow()
    }

    /// Returns when there is an event after this one, or when it is time to look again.
    pub async fn changed(&self, after: i64) {
        let mut newest = self.committed.newest.subscribe();
        // The caller reads in both cases.
        tokio::select! {
            _ = newest.wait_for(|newest| *newest > after) => {}
            () = self.look_for_others() => {}
        }
    }

    /// Polls for all waiting readers; when this reader ends, the next one takes over.
    async fn look_for_others(&self) {
        if matches!(self.database, Database::Sqlite { .. }) {
            return tokio::time::sleep(SQLITE_POLL_INTERVAL).await;
        }
        let _turn = self.committed.looking.lock().await;
        loop {
            tokio::time::sleep(POSTGRES_POLL_INTERVAL).await;
            match self.last_event().await {
                Ok(seq) => self.committed.reached(seq),
                // The caller reads and gets the error.
                Err(_) => return,
            }
        }
    }
}

//! Waking those who follow the event log, so that they need not look again and again.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, watch};

use crate::{Database, Store};

/// Processes on other machines write to the same PostgreSQL, and nobody here hears of it: it is looked at this often,
/// by one for all who follow.
const POSTGRES_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// To SQLite only one process writes, so this is for the case that somebody broke that rule.
const SQLITE_POLL_INTERVAL: Duration = Duration::from_secs(5);

/// The number of the newest event that this process knows of, 0 before its first.
#[derive(Debug, Clone)]
pub(crate) struct Committed {
    newest: watch::Sender<i64>,
    /// Whoever has it looks for what others have written.
    looking: Arc<Mutex<()>>,
}

impl Committed {
    pub(crate) fn new() -> Self {
        Self { newest: watch::Sender::new(0), looking: Arc::default() }
    }

    /// Called after the commit, so that whoever wakes up finds what there is. Two commits may tell of themselves
    /// in either order; the newer one stays.
    pub(crate) fn reached(&self, seq: i64) {
        self.newest.send_if_modified(|newest| {
            let newer = seq > *newest;
            *newest = seq.max(*newest);
            newer
        });
    }
}

impl Store {
    /// For [`Self::changed`]: take it before a look, and nothing that comes during the look is missed.
    pub fn committed(&self) -> i64 {
        *self.committed.newest.borrow()
    }

    /// Returns when there is an event beyond this one, at once if there is already, or when it is time to look all the
    /// same.
    pub async fn changed(&self, after: i64) {
        let mut newest = self.committed.newest.subscribe();
        // Which of the two it was makes no difference: the caller looks.
        tokio::select! {
            _ = newest.wait_for(|newest| *newest > after) => {}
            () = self.look_for_others() => {}
        }
    }

    /// One of those who wait looks for all of them; when it goes, the next one takes its turn.
    async fn look_for_others(&self) {
        if matches!(self.database, Database::Sqlite { .. }) {
            return tokio::time::sleep(SQLITE_POLL_INTERVAL).await;
        }
        let _turn = self.committed.looking.lock().await;
        loop {
            tokio::time::sleep(POSTGRES_POLL_INTERVAL).await;
            match self.last_event().await {
                Ok(seq) => self.committed.reached(seq),
                // Whoever waits looks now, and hears what is wrong.
                Err(_) => return,
            }
        }
    }
}

//! Group commit on SQLite: one writer takes what has queued up and commits it together.
//!
//! A sync costs the same for one change as for a hundred. Each verb runs inside a savepoint of its own, unless it is
//! alone, so that one that fails takes nothing else with it; nobody gets an answer before the commit, nor after it if
//! the file has been removed or replaced meanwhile.

use std::panic::AssertUnwindSafe;

use cowhand_core::actor::Actor;
use cowhand_core::moment::Moment;
use futures_util::FutureExt;
use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, Connection, Executor};
use tokio::sync::{mpsc, oneshot};

use super::changes::Committed;
use super::db::Tx;
use super::error::StoreError;
use super::file::StoreFile;
use crate::Answer;
use crate::audit;

/// How many verbs may share a commit; enough to make the sync cheap, few enough to keep the wait short.
const MAX_VERBS_PER_COMMIT: usize = 256;
/// How many may queue before callers have to wait to get in.
const WRITER_QUEUE_LENGTH: usize = 1_024;

#[derive(Debug, Clone)]
pub(crate) struct Writer {
    queue: mpsc::Sender<Request>,
}

enum Request {
    Verb(Box<dyn Verb>),
    Close(oneshot::Sender<()>),
}

impl Writer {
    pub(crate) fn start(connection: SqliteConnection, committed: Committed, file: StoreFile) -> Self {
        let (queue, requests) = mpsc::channel(WRITER_QUEUE_LENGTH);
        tokio::spawn(work(connection, requests, committed, file));
        Self { queue }
    }

    pub(crate) async fn write<T, F>(&self, present: Option<Moment>, verb: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: for<'t> FnOnce(&'t mut Tx<'_>) -> Answer<'t, T> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let verb = Box::new(Queued { verb: Some(verb), by: audit::current(), present, done: None, reply });
        self.queue.send(Request::Verb(verb)).await.map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    /// Answers when everything that was asked for before is written and the file is closed.
    pub(crate) async fn close(&self) {
        let (reply, closed) = oneshot::channel();
        if self.queue.send(Request::Close(reply)).await.is_ok() {
            // An error here means that the writer is gone, which is what was asked for.
            closed.await.unwrap_or_default();
        }
    }
}

async fn work(
    mut connection: SqliteConnection,
    mut requests: mpsc::Receiver<Request>,
    committed: Committed,
    file: StoreFile,
) {
    let mut closing = None;
    while closing.is_none() {
        let mut group = Vec::new();
        let mut waiting = Vec::new();
        if requests.recv_many(&mut waiting, MAX_VERBS_PER_COMMIT).await == 0 {
            break;
        }
        for request in waiting {
            match request {
                Request::Verb(verb) => group.push(verb),
                Request::Close(reply) => closing = Some(reply),
            }
        }
        commit_together(&mut connection, group, &committed, &file).await;
    }
    requests.close();
    if file.check().is_ok() {
        // A close that fails has nothing left to lose: every answer that was given is on disk.
        drop(connection.close().await);
    } else {
        // SQLite would remove the log by its path, and that may be somebody else's now.
        std::mem::forget(connection);
    }
    if let Some(reply) = closing {
        // Nobody waits any more if this fails.
        reply.send(()).unwrap_or_default();
    }
}

async fn commit_together(
    connection: &mut SqliteConnection,
    mut group: Vec<Box<dyn Verb>>,
    committed: &Committed,
    file: &StoreFile,
) {
    let failed = match checked_together(connection, &mut group, file).await {
        Ok(last_event) => {
            committed.reached(last_event);
            None
        }
        Err(error) => Some(error),
    };
    for verb in group {
        verb.answer(failed.as_ref());
    }
}

/// Commits to the file that its path leads to, or fails.
async fn checked_together(
    connection: &mut SqliteConnection,
    group: &mut [Box<dyn Verb>],
    file: &StoreFile,
) -> Result<i64, StoreError> {
    file.check()?;
    let last_event = match run_together(connection, group).await {
        Ok(last_event) => last_event,
        Err(error) => {
            // The connection may hold half a transaction; if even this fails the next begin says so.
            drop(connection.execute("rollback").await);
            return Err(match StoreError::connection(error) {
                damaged @ StoreError::Damaged(_) => damaged,
                StoreError::Connection(error) => StoreError::Commit(error.to_string()),
                other => other,
            });
        }
    };
    match file.check() {
        // It was there before the commit, and a mode takes nothing away from what is written.
        Ok(()) | Err(StoreError::Unreachable { .. }) => Ok(last_event),
        Err(error) => Err(error),
    }
}

/// The number of the last event that was committed, 0 if there was none.
async fn run_together(
    connection: &mut SqliteConnection,
    group: &mut [Box<dyn Verb>],
) -> Result<i64, sqlx::Error> {
    // Immediate: a deferred transaction that reads before it writes fails under contention, whatever the timeout.
    connection.execute("begin immediate").await?;
    if let [alone] = group {
        let kept = alone.run(connection).await;
        connection.execute(if kept.is_some() { "commit" } else { "rollback" }).await?;
        return Ok(kept.unwrap_or_default());
    }
    let mut last_event = 0;
    for verb in group {
        connection.execute("savepoint verb").await?;
        let kept = verb.run(connection).await;
        let back = if kept.is_some() { "" } else { "rollback to verb; " };
        connection.execute(AssertSqlSafe(format!("{back}release verb"))).await?;
        last_event = last_event.max(kept.unwrap_or_default());
    }
    connection.execute("commit").await?;
    Ok(last_event)
}

/// A verb in the queue, whatever its answer's type.
trait Verb: Send {
    /// None if what it did is not to be kept, else the number of its last event, 0 without one.
    fn run<'r>(
        &'r mut self,
        connection: &'r mut SqliteConnection,
    ) -> futures_util::future::BoxFuture<'r, Option<i64>>;
    fn answer(self: Box<Self>, commit_failed: Option<&StoreError>);
}

struct Queued<T, F> {
    verb: Option<F>,
    by: Option<Actor>,
    present: Option<Moment>,
    done: Option<Result<T, StoreError>>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> Verb for Queued<T, F>
where
    T: Send,
    F: for<'t> FnOnce(&'t mut Tx<'_>) -> Answer<'t, T> + Send,
{
    fn run<'r>(
        &'r mut self,
        connection: &'r mut SqliteConnection,
    ) -> futures_util::future::BoxFuture<'r, Option<i64>> {
        let (verb, by, present) = (self.verb.take(), self.by.take(), self.present);
        let done = &mut self.done;
        Box::pin(async move {
            let verb = verb?;
            let mut last_event = 0;
            let whole = async {
                let mut tx = Tx::sqlite(connection).on_account_of(by).called_at(present);
                let answer = verb(&mut tx).await?;
                last_event = tx.write_events().await?;
                Ok(answer)
            };
            let answer = AssertUnwindSafe(whole).catch_unwind().await.unwrap_or(Err(StoreError::Panicked));
            done.insert(answer).is_ok().then_some(last_event)
        })
    }

    fn answer(self: Box<Self>, commit_failed: Option<&StoreError>) {
        let answer = match (commit_failed, self.done) {
            (_, Some(Err(error))) => Err(error),
            (Some(StoreError::Replaced { place, how }), _) => {
                Err(StoreError::Replaced { place: place.clone(), how: how.clone() })
            }
            (Some(StoreError::Unreachable { place, advice }), _) => {
                Err(StoreError::Unreachable { place: place.clone(), advice: advice.clone() })
            }
            (Some(StoreError::Damaged(why)), _) => Err(StoreError::Damaged(why.clone())),
            (Some(StoreError::Commit(why)), _) => Err(StoreError::Commit(why.clone())),
            (Some(other), _) => Err(StoreError::Commit(other.to_string())),
            (None, Some(answer)) => answer,
            (None, None) => Err(StoreError::Closed),
        };
        // The caller may have gone away; what it asked for is done all the same.
        drop(self.reply.send(answer));
    }
}

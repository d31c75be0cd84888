//! Group commit on SQLite: one writer commits the queued verbs together.
//!
//! A sync costs the same for one change as for a hundred. Each verb runs in its own savepoint, unless it is alone in
//! the transaction, so that a failure does not affect the other verbs. Callers get an answer only after the commit. If
//! the file was removed or replaced meanwhile, the answer is an error, unless the commit is enough ([`SuccessIf`]).

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use cowhand_core::actor::Actor;
use cowhand_core::moment::Moment;
use tokio::sync::{mpsc, oneshot};

use super::changes::Committed;
use super::counts::StatementCounter;
use super::db::Tx;
use super::error::StoreError;
use super::file::StoreFile;
use super::sqlite::{SqliteConnection, run_now};
use crate::VerbFuture;
use crate::audit;

/// Maximum number of verbs in a commit: enough to make the sync cheap, few enough to keep the wait short.
const MAX_VERBS_PER_COMMIT: usize = 256;
/// Length of the queue; further callers wait.
const WRITER_QUEUE_LENGTH: usize = 1_024;

#[derive(Debug, Clone)]
pub(crate) struct Writer {
    queue: mpsc::Sender<Request>,
    counter: StatementCounter,
}

/// Condition under which a committed verb has succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SuccessIf {
    /// The path still leads to the file. For verbs that somebody relies on after a restart.
    FileExists,
    /// The verb is committed, even if the file was removed or replaced during the commit. For claims: the
    /// daemon still has the removed file open, and a backup that it makes of that file contains the claim. So the claim
    /// counts, and the daemon has to start the attempt.
    Committed,
}

enum Request {
    Verb(Box<dyn Verb>),
    Close(oneshot::Sender<()>),
}

impl Writer {
    /// Starts the thread of the writer. The thread ends when the store is closed or dropped.
    pub(crate) fn start(
        connection: SqliteConnection,
        committed: Committed,
        file: StoreFile,
        counter: StatementCounter,
    ) -> io::Result<Self> {
        let (queue, requests) = mpsc::channel(WRITER_QUEUE_LENGTH);
        let thread = thread::Builder::new().name("store-writer".to_owned());
        thread.spawn(move || run_writer(connection, requests, &committed, &file))?;
        Ok(Self { queue, counter })
    }

    pub(crate) async fn write<T, F>(
        &self,
        call_time: Option<Moment>,
        success_if: SuccessIf,
        verb: F,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: for<'t> FnOnce(&'t mut Tx<'_>) -> VerbFuture<'t, T> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let verb = Box::new(QueuedVerb {
            verb: Some(verb),
            actor: audit::current(),
            call_time,
            success_if,
            counter: self.counter.clone(),
            result: None,
            reply,
        });
        self.queue.send(Request::Verb(verb)).await.map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    /// Writes the verbs that are already in the queue, then closes the file.
    pub(crate) async fn close(&self) {
        let (reply, closed) = oneshot::channel();
        if self.queue.send(Request::Close(reply)).await.is_ok() {
            // An error means that the writer has already ended.
            closed.await.unwrap_or_default();
        }
    }
}

fn run_writer(
    mut connection: SqliteConnection,
    mut requests: mpsc::Receiver<Request>,
    committed: &Committed,
    file: &StoreFile,
) {
    let mut close_reply = None;
    while close_reply.is_none() {
        let mut group = Vec::new();
        let mut received = Vec::new();
        if requests.blocking_recv_many(&mut received, MAX_VERBS_PER_COMMIT) == 0 {
            break;
        }
        for request in received {
            match request {
                Request::Verb(verb) => group.push(verb),
                Request::Close(reply) => close_reply = Some(reply),
            }
        }
        commit_group(&mut connection, group, committed, file);
    }
    requests.close();
    if file.check().is_ok() {
        // A failed close loses nothing: every confirmed write is on disk.
        drop(connection.close());
    } else {
        // On close, SQLite would remove the file at the path of its write-ahead log, and that file may belong to
        // another database now.
        std::mem::forget(connection);
    }
    if let Some(reply) = close_reply {
        // The caller may have stopped waiting.
        reply.send(()).unwrap_or_default();
    }
}

fn commit_group(
    connection: &mut SqliteConnection,
    mut group: Vec<Box<dyn Verb>>,
    committed: &Committed,
    file: &StoreFile,
) {
    let commit_error = match run_checked(connection, &mut group, file) {
        Ok(last_event) => {
            committed.advance(last_event);
            None
        }
        Err(error) => Some(error),
    };
    for verb in group {
        verb.reply(commit_error.as_ref());
    }
}

/// Runs verbs in one transaction. Fails if the path does not lead to the open file.
fn run_checked(
    connection: &mut SqliteConnection,
    group: &mut [Box<dyn Verb>],
    file: &StoreFile,
) -> Result<i64, StoreError> {
    file.check()?;
    let last_event = match run_in_transaction(connection, group) {
        Ok(last_event) => last_event,
        Err(error) => {
            // The connection may be in a transaction; if the rollback fails, the next `begin` reports it.
            drop(connection.command("rollback"));
            return Err(match StoreError::connection(error) {
                damaged @ StoreError::Damaged(_) => damaged,
                StoreError::Connection(error) => {
                    file.disk_error(&error).unwrap_or_else(|| StoreError::Commit(error.to_string()))
                }
                other => other,
            });
        }
    };
    match file.check() {
        // The file existed before the commit, and a changed mode does not affect written data.
        Ok(()) | Err(StoreError::PermissionDenied { .. }) => Ok(last_event),
        Err(error) => Err(error),
    }
}

/// Runs verbs in one transaction and returns the number of the last event; 0 if there are no events.
fn run_in_transaction(
    connection: &mut SqliteConnection,
    group: &mut [Box<dyn Verb>],
) -> rusqlite::Result<i64> {
    // A deferred transaction that reads before it writes fails under contention, whatever the timeout.
    connection.command("begin immediate")?;
    if let [verb] = group {
        let verb_event = verb.run(connection);
        connection.command(if verb_event.is_some() { "commit" } else { "rollback" })?;
        return Ok(verb_event.unwrap_or_default());
    }
    let mut last_event = 0;
    for verb in group {
        connection.command("savepoint verb")?;
        let verb_event = verb.run(connection);
        if verb_event.is_none() {
            connection.command("rollback to verb")?;
        }
        connection.command("release verb")?;
        last_event = last_event.max(verb_event.unwrap_or_default());
    }
    connection.command("commit")?;
    Ok(last_event)
}

/// A queued verb with a result of any type.
trait Verb: Send {
    /// Runs the verb. Returns the number of its last event, 0 if it has no events, and `None` if its changes have to be
    /// rolled back.
    fn run(&mut self, connection: &mut SqliteConnection) -> Option<i64>;
    /// Sends the result to the caller. If the commit failed, each verb without an error of its own gets the error of
    /// the commit.
    fn reply(self: Box<Self>, commit_error: Option<&StoreError>);
}

struct QueuedVerb<T, F> {
    verb: Option<F>,
    actor: Option<Actor>,
    call_time: Option<Moment>,
    success_if: SuccessIf,
    counter: StatementCounter,
    result: Option<Result<T, StoreError>>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> Verb for QueuedVerb<T, F>
where
    T: Send,
    F: for<'t> FnOnce(&'t mut Tx<'_>) -> VerbFuture<'t, T> + Send,
{
    fn run(&mut self, connection: &mut SqliteConnection) -> Option<i64> {
        let (verb, actor, call_time) = (self.verb.take()?, self.actor.take(), self.call_time);
        let mut last_event = 0;
        let run = || {
            run_now(async {
                let mut tx =
                    Tx::sqlite(connection, &self.counter).with_actor(actor).with_call_time(call_time);
                let answer = verb(&mut tx).await?;
                last_event = tx.write_events().await?;
                Ok(answer)
            })
        };
        let answer = catch_unwind(AssertUnwindSafe(run)).unwrap_or(Err(StoreError::Panicked));
        self.result.insert(answer).is_ok().then_some(last_event)
    }

    fn reply(self: Box<Self>, commit_error: Option<&StoreError>) {
        let answer = match (commit_error, self.result) {
            (_, Some(Err(error))) => Err(error),
            // The verb has a result, so it ran. The change of the file was therefore found only after the commit.
            (Some(StoreError::FileChanged { .. }), Some(answer))
                if self.success_if == SuccessIf::Committed =>
            {
                answer
            }
            (Some(StoreError::FileChanged { location, how }), _) => {
                Err(StoreError::FileChanged { location: location.clone(), how: how.clone() })
            }
            (Some(StoreError::PermissionDenied { location, advice }), _) => {
                Err(StoreError::PermissionDenied { location: location.clone(), advice: advice.clone() })
            }
            (Some(StoreError::Disk { problem, folder }), _) => {
                Err(StoreError::Disk { problem: *problem, folder: folder.clone() })
            }
            (Some(StoreError::Damaged(why)), _) => Err(StoreError::Damaged(why.clone())),
            (Some(StoreError::Commit(why)), _) => Err(StoreError::Commit(why.clone())),
            (Some(other), _) => Err(StoreError::Commit(other.to_string())),
            (None, Some(answer)) => answer,
            (None, None) => Err(StoreError::Closed),
        };
        // The verb is done even if the caller has stopped waiting.
        drop(self.reply.send(answer));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::{Database, Store};

    async fn remove_while_it_writes(path: PathBuf, success_if: SuccessIf) -> Result<u32, StoreError> {
        let store = Store::open(path.to_str().unwrap()).await.unwrap();
        let Database::Sqlite { writer, .. } = &store.database else { panic!("SQLite") };
        let answer = writer
            .write(None, success_if, move |_| {
                fs::remove_file(&path).unwrap();
                Box::pin(async { Ok(7) })
            })
            .await;
        let later = writer.write(None, success_if, |_| Box::pin(async { Ok(()) })).await;
        assert!(matches!(later, Err(StoreError::FileChanged { .. })), "{later:?}");
        answer
    }

    /// A backup of the removed file contains the commit.
    #[tokio::test]
    async fn commit_to_a_file_removed_meanwhile_is_enough_only_for_claims() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| Path::new(folder.path()).join(name);
        let promised = remove_while_it_writes(file("promised.db"), SuccessIf::FileExists).await;
        assert!(matches!(promised, Err(StoreError::FileChanged { .. })), "{promised:?}");
        assert_eq!(remove_while_it_writes(file("claimed.db"), SuccessIf::Committed).await.unwrap(), 7);
    }
}

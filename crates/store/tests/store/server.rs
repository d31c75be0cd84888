//! A PostgreSQL server that does not answer.

use std::time::Duration;

use cowhand_core::id::JobId;
use cowhand_store::{Store, StoreError};
use sqlx::{Connection, Executor, PgConnection};

use crate::{TestDb, at, hand_job};

/// Number of connections of the pool.
const ALL: usize = 16;
/// Time that is longer than the limit of a statement, and longer than the pool waits for a returned connection.
const TOO_LONG: Duration = Duration::from_secs(61);

async fn waiting_for_locks(server: &mut PgConnection) -> usize {
    let waiting: i64 = sqlx::query_scalar("select count(*) from pg_locks where not granted")
        .fetch_one(server)
        .await
        .unwrap();
    usize::try_from(waiting).unwrap()
}

/// Cancels the job in a new task, and returns when the statement of that task waits for a lock.
async fn blocked_cancel(
    store: &Store,
    job: &JobId,
    other: &mut PgConnection,
) -> tokio::task::JoinHandle<Result<(), StoreError>> {
    let (store, job) = (store.clone(), job.clone());
    let before = waiting_for_locks(other).await;
    let task = tokio::spawn(async move { store.cancel(job, at(1)).await.map(drop) });
    while waiting_for_locks(other).await <= before {
        assert!(!task.is_finished(), "{:?}", task.await);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    task
}

async fn move_clock() {
    tokio::time::pause();
    tokio::time::advance(TOO_LONG).await;
    tokio::time::resume();
}

/// The test moves the clock of the runtime, so it has one thread.
#[tokio::test]
async fn a_statement_without_an_answer_is_an_error_that_names_the_server() {
    let db = TestDb::postgres();
    let store = db.open().await;
    let job = store.add_job(hand_job(), at(0)).await.unwrap().id().clone();
    let mut locker = PgConnection::connect(&db.url).await.unwrap();
    let mut watcher = PgConnection::connect(&db.url).await.unwrap();
    locker.execute("begin; lock table jobs in access exclusive mode").await.unwrap();
    let blocked = blocked_cancel(&store, &job, &mut watcher).await;
    move_clock().await;
    let error = blocked.await.unwrap().unwrap_err();
    assert!(matches!(error, StoreError::NoAnswer { .. }), "{error}");
    let message = error.to_string();
    assert!(message.contains("postgres://") && message.contains("no answer within 60 seconds"), "{message}");
    // Calls whose callers were dropped do not keep the connections of the pool forever.
    for _ in 0..ALL {
        let blocked = blocked_cancel(&store, &job, &mut watcher).await;
        blocked.abort();
        blocked.await.unwrap_err();
    }
    move_clock().await;
    blocked_cancel(&store, &job, &mut watcher).await.abort();
    locker.execute("rollback").await.unwrap();
    store.last_event().await.unwrap();
    store.close().await;
}

//! A PostgreSQL server that refuses connections or requests.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use cowhand_store::{JobFilter, Store, StoreError};
use sqlx::{Connection, Executor, PgConnection};

use crate::{TestDb, at};

/// Makes a database that belongs to `cow`, and returns the address for this user.
async fn address_of_cow(db: &TestDb, admin: &mut PgConnection) -> String {
    admin.execute("create role cow login").await.unwrap();
    admin.execute("create database fleet owner cow").await.unwrap();
    db.url.replacen("/postgres?", "/fleet?", 1).replace("user=postgres", "user=cow")
}

#[tokio::test]
async fn a_refused_connection_is_an_error_with_its_reason() {
    let db = TestDb::postgres();
    let mut admin = PgConnection::connect(&db.url).await.unwrap();
    let url = address_of_cow(&db, &mut admin).await;
    let store = Store::open(&url).await.unwrap();
    let _presence = store.announce_node("a").await.unwrap();
    // The presence has one connection, and the pool has one.
    store.test_write(at(0)).await.unwrap();
    admin.execute("alter role cow connection limit 2").await.unwrap();
    let refused = |error: StoreError, words: &[&str]| {
        assert!(matches!(error, StoreError::ServerRefuses { .. }), "{error:?}");
        let message = error.to_string();
        for word in words.iter().chain(&["postgres://", "/fleet"]) {
            assert!(message.contains(word), "{word} in {message}");
        }
        assert!(!message.contains("at line"), "{message}");
    };
    let waiting: Vec<_> = (0..4).map(|_| store.jobs(JobFilter::default(), 1)).collect();
    let results = futures_util::future::join_all(waiting).await;
    for error in results.into_iter().filter_map(Result::err) {
        refused(error, &["too many connections for role", "18 connections"]);
    }
    let other = Store::open(&url).await.unwrap_err();
    refused(other, &["too many connections for role"]);
    admin.execute("alter role cow nologin connection limit -1").await.unwrap();
    let error = Store::open(&url).await.unwrap_err();
    refused(error, &["not permitted to log in", "cowhand stop --keep-agents", "cowhand start -d"]);
}

#[tokio::test]
async fn missing_rights_are_named() {
    let db = TestDb::postgres();
    let mut admin = PgConnection::connect(&db.url).await.unwrap();
    admin.execute("create role cow login").await.unwrap();
    admin.execute("revoke create on schema public from public").await.unwrap();
    let error = Store::open(&db.url.replace("user=postgres", "user=cow")).await.unwrap_err();
    assert!(matches!(error, StoreError::NoRights { .. }), "{error:?}");
    let message = error.to_string();
    assert!(
        message.contains("permission denied for schema public") && message.contains("grant "),
        "{message}"
    );
    assert!(!message.contains("at line"), "{message}");
}

/// If a caller is dropped while its transaction begins, the next call must not run in that transaction.
#[tokio::test]
async fn a_call_that_is_dropped_at_its_begin_leaves_no_transaction() {
    let db = TestDb::postgres();
    let store = db.open().await;
    for polls in 1..40 {
        let mut read = Box::pin(store.jobs(JobFilter::default(), 1));
        for _ in 0..polls {
            if poll_fn(|context| Poll::Ready(read.as_mut().poll(context))).await.is_ready() {
                break;
            }
            tokio::time::sleep(Duration::from_micros(300)).await;
        }
        drop(read);
    }
    let mut watcher = PgConnection::connect(&db.url).await.unwrap();
    let open = "select count(*) from pg_stat_activity where state like 'idle in transaction%'";
    for _ in 0..100 {
        if sqlx::query_scalar::<_, i64>(open).fetch_one(&mut watcher).await.unwrap() == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("a connection is still in a transaction");
}

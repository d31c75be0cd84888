//! A damaged store is reported, and its file is not changed.

use cowhand_store::{Store, StoreError};

use crate::{TestDb, at, hand_job};

async fn refuse(url: &str) -> StoreError {
    match Store::open(url).await {
        Err(error) => error,
        Ok(_) => panic!("{url} was opened"),
    }
}

#[tokio::test]
async fn a_file_that_is_no_database_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("store.db");
    let letter = "Dear diary, this is not a database. ".repeat(100);
    std::fs::write(&file, &letter).unwrap();
    let error = refuse(&file.display().to_string()).await.to_string();
    assert!(error.contains("store.db") && error.contains("not a database"), "{error}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), letter);
}

#[tokio::test]
async fn a_folder_that_is_not_there_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let error = refuse(&folder.path().join("gone/store.db").display().to_string()).await.to_string();
    assert!(error.contains("gone/store.db"), "{error}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named_without_its_password() {
    let error = refuse("postgres://me:hunter2@127.0.0.1:1/fleet").await.to_string();
    assert!(error.contains("postgres://127.0.0.1:1/fleet"), "{error}");
    assert!(!error.contains("hunter2"), "{error}");
}

#[tokio::test]
async fn a_store_from_a_newer_version_is_refused() {
    let db = TestDb::sqlite();
    db.open().await.close().await;
    let file = rusqlite::Connection::open(&db.url).unwrap();
    let newer = "insert into _sqlx_migrations (version, description, success, checksum, execution_time) \
                 values (9001, 'from the future', 1, x'00', 0)";
    file.execute_batch(newer).unwrap();
    drop(file);
    let error = refuse(&db.url).await;
    assert!(matches!(error, StoreError::Newer { found: 9001, .. }), "{error}");
    assert!(error.to_string().contains("newer cowhand"), "{error}");
}

#[tokio::test]
async fn an_inconsistent_row_is_an_error() {
    let db = TestDb::sqlite();
    let store = db.open().await;
    let job = store.add_job(hand_job(), at(0)).await.unwrap();
    let file = rusqlite::Connection::open(&db.url).unwrap();
    for damage in [
        "update jobs set status = 'done'",
        "update jobs set status = 'completed'",
        "update jobs set id = '../x'",
    ] {
        file.execute_batch(damage).unwrap();
        let listed = store.jobs(cowhand_store::JobFilter::default(), 10).await;
        assert!(matches!(listed, Err(StoreError::Unreadable { .. })), "{damage}: {listed:?}");
    }
    drop(job);
}

#[tokio::test]
async fn a_closed_store_returns_an_error() {
    let db = TestDb::sqlite();
    let store = db.open().await;
    let other = store.clone();
    store.close().await;
    assert!(matches!(other.add_job(hand_job(), at(0)).await, Err(StoreError::Closed)));
}

/// The error contains the message of the server without the line of its source code.
#[tokio::test]
async fn a_database_that_does_not_exist_is_named() {
    let server = cowhand_testing::postgres::Postgres::start();
    let url = server.url().replacen("/postgres?", "/fleet?", 1);
    let checked = Store::check_location(&url).await.unwrap_err().to_string();
    for error in [refuse(&url).await.to_string(), checked] {
        assert!(error.contains("(database \"fleet\" does not exist); create the database"), "{error}");
    }
}

/// The server accepts the connection and does not answer.
#[tokio::test]
async fn connecting_to_a_silent_server_times_out() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let url = format!("postgres://cowhand:hunter2@{address}/fleet");
    let limit = std::time::Duration::from_mins(1);
    let (opened, checked) =
        tokio::time::timeout(limit, async { tokio::join!(Store::open(&url), Store::check_location(&url)) })
            .await
            .expect("both give up");
    for error in [opened.unwrap_err(), checked.unwrap_err()] {
        let message = error.to_string();
        assert!(message.contains(&format!("postgres://{address}/fleet, has not answered within 10 seconds")));
        assert!(message.contains("check that a PostgreSQL server runs there"), "{message}");
        assert!(!message.contains("hunter2"), "{message}");
    }
}

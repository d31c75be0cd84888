//! The identity of a store.

use cowhand_store::Store;
use sqlx::Connection;

use crate::{TestDb, on_both};

on_both! {
    a_store_keeps_its_id,
}

async fn a_store_keeps_its_id(db: TestDb) {
    let store = db.open().await;
    assert_eq!(Store::check_location(&db.url).await.unwrap(), None, "no daemon has used it");
    let id = store.identity().await.unwrap();
    assert_eq!(db.open().await.identity().await.unwrap(), id);
    assert_eq!(Store::check_location(&db.url).await.unwrap(), Some(id.clone()));
    assert_ne!(TestDb::sqlite().open().await.identity().await.unwrap(), id);
}

#[tokio::test]
async fn a_missing_store_has_no_id() {
    assert_eq!(Store::check_location("/nowhere/store.db").await.unwrap(), None);
}

#[tokio::test]
async fn an_id_that_cannot_be_read_is_an_error() {
    const DAMAGE: &str = "alter table store_identity rename column store_id to lost";
    let (file, server) = (TestDb::sqlite(), TestDb::postgres());
    for db in [&file, &server] {
        let store = db.open().await;
        store.identity().await.unwrap();
        store.close().await;
    }
    rusqlite::Connection::open(&file.url).unwrap().execute_batch(DAMAGE).unwrap();
    let mut connection = sqlx::PgConnection::connect(&server.url).await.unwrap();
    sqlx::query(DAMAGE).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    for url in [&file.url, &server.url] {
        let error = Store::check_location(url).await.unwrap_err().to_string();
        assert!(error.contains("cannot open the store") && error.contains("store_id"), "{error}");
    }
}

#[tokio::test]
async fn a_database_without_tables_is_no_store() {
    let (file, server) = (TestDb::sqlite(), TestDb::postgres());
    for db in [file, server] {
        assert!(!Store::exists(&db.url).await.unwrap(), "{}", db.url);
        db.open().await.close().await;
        assert!(Store::exists(&db.url).await.unwrap(), "{}", db.url);
    }
}

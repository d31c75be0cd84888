//! The identity of a store.

use cowhand_store::Store;

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

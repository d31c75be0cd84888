//! The identity of a store: a random id that distinguishes it from every other store, even from a store at the same
//! address.

use uuid::Uuid;

use super::database::db::args;
use super::database::dialect::statements;
use super::database::{READ_IDENTITY, display_address};
use super::{Database, Store, StoreError, StoreId};

statements! {
    IDENTITY = same (READ_IDENTITY);
    MAKE_IDENTITY = same "insert into store_identity (id, store_id) values (1, $1) on conflict (id) do nothing";
}

impl Store {
    /// Returns the id of the store. The first call creates the id.
    pub async fn identity(&self) -> Result<StoreId, StoreError> {
        self.write(|tx| {
            Box::pin(async move {
                tx.execute(MAKE_IDENTITY, args![Uuid::now_v7().to_string()]).await?;
                let row = tx.one(IDENTITY, args![]).await?;
                let id = row.map(|row| row.get("store_id")).transpose()?;
                id.map(StoreId::new)
                    .ok_or_else(|| StoreError::Unreadable { what: "the id of the store".to_owned() })
            })
        })
        .await
    }

    /// Returns the path of the file, or the address of the server without user and password.
    pub fn address(&self) -> String {
        match &self.database {
            Database::Sqlite { file, .. } => file.path().display().to_string(),
            Database::Postgres(pool) => display_address(&pool.connect_options()),
        }
    }
}

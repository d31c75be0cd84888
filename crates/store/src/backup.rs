//! A copy of the whole store in a file.

use std::path::Path;

use super::database::db::Arg;
use super::database::sqlite::SqliteConnection;
use super::{Database, Store, StoreError};

impl Store {
    /// Returns true if the store is a database server, which has its own backup programs.
    pub fn is_postgres(&self) -> bool {
        matches!(self.database, Database::Postgres(_))
    }

    /// Writes all committed data to a file while other writes continue. The file must be new or empty. This works as
    /// long as the store is open, even if the file of the store was removed. Fails on PostgreSQL.
    pub async fn copy_to(&self, path: &Path) -> Result<(), StoreError> {
        let Database::Sqlite { readers, .. } = &self.database else {
            return Err(StoreError::PostgresBackup);
        };
        let copy = |connection: &mut SqliteConnection| {
            let to = [Arg::from(path.display().to_string())];
            connection.execute("vacuum into $1", &to).map_err(|error| StoreError::statement("VACUUM", error))
        };
        readers.run_long(copy).await.map(drop)
    }
}

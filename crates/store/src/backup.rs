//! A copy of the whole store in a file.

use std::path::Path;

use super::{Database, Store, StoreError};

impl Store {
    /// Whether the store is a server, which has programs of its own for backups.
    pub fn is_server(&self) -> bool {
        matches!(self.database, Database::Postgres(_))
    }

    /// Writes all that is committed now to a new file, while others go on writing. Works as long as the store is open,
    /// also when its own file was removed.
    pub async fn copy_to(&self, path: &Path) -> Result<(), StoreError> {
        let Database::Sqlite { readers, .. } = &self.database else {
            return Err(StoreError::NoCopy);
        };
        let copy = sqlx::query("vacuum into $1").bind(path.display().to_string());
        copy.execute(readers).await.map(drop).map_err(|error| StoreError::statement("VACUUM", error))
    }
}

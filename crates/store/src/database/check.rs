//! Checks whether a store can be opened, without changing it, because another process may use it.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sqlx::migrate::Migrator;
use sqlx::{ConnectOptions, Connection};

use super::error::StoreError;
use super::migrations::{POSTGRES, SQLITE};
use super::{open, server};
use crate::Store;

/// Query for the id. A store that no daemon of this version has used has no such table or row.
pub(crate) const READ_IDENTITY: &str = "select store_id from store_identity where id = 1";

/// Id of a store. A backup has the id of its store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreId(String);

impl StoreId {
    pub(crate) const fn new(id: String) -> Self {
        Self(id)
    }
}

impl fmt::Display for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Store {
    /// Fails if `location` cannot be opened: its server does not answer, or a newer version wrote it. A missing file is
    /// not an error, because opening creates it. Returns the id of the store; `None` if it has none, because it does
    /// not exist or no daemon of this version has used it.
    pub async fn check_location(location: &str) -> Result<Option<StoreId>, StoreError> {
        let open_error = |location: String| {
            move |why: sqlx::Error| StoreError::Open { location, why: open::server_message(&why) }
        };
        if !open::is_postgres(location) {
            let path = Path::new(location);
            if !path.exists() {
                return Ok(None);
            }
            let options = open::options(path).read_only(true);
            let mut file = options.connect().await.map_err(open_error(location.to_owned()))?;
            let applied = sqlx::query_scalar(open::APPLIED_MIGRATIONS).fetch_all(&mut file).await;
            let id = sqlx::query_scalar(READ_IDENTITY).fetch_optional(&mut file).await;
            file.close().await.map_err(open_error(location.to_owned()))?;
            check_version(&applied.unwrap_or_default(), &SQLITE, location)?;
            return Ok(id.unwrap_or_default().map(StoreId::new));
        }
        let options = server::options(location)?;
        let address = open::display_address(&options);
        let (mut server, applied) = open::connect(&options).await?;
        let read = async {
            let id = sqlx::query_scalar(READ_IDENTITY).fetch_optional(&mut server).await;
            server.close().await.map_err(open_error(address.clone()))?;
            Ok(id.unwrap_or_default())
        };
        let id: Option<String> = open::within_limit(&address, read).await?;
        check_version(&applied, &POSTGRES, &address)?;
        Ok(id.map(StoreId::new))
    }
}

/// Fails if a migration was applied that this version does not know.
fn check_version(applied: &[i64], migrations: &Migrator, location: &str) -> Result<(), StoreError> {
    let known = open::newest_of(migrations).unwrap_or_default();
    match applied.iter().copied().max().filter(|found| *found > known) {
        Some(found) => Err(StoreError::Newer { location: location.to_owned(), found, known }),
        None => Ok(()),
    }
}

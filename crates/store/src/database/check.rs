//! Checks whether a store can be opened, without changing it, because another process may use it.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sqlx::migrate::Migrator;
use sqlx::postgres::PgDatabaseError;
use sqlx::{ConnectOptions, Connection};

use super::error::StoreError;
use super::migrations::{POSTGRES, SQLITE};
use super::{open, server};
use crate::Store;
use cowhand_system::remove::is_missing;

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
        if !open::is_postgres(location) {
            let path = Path::new(location);
            return if path.exists() { check_file(path, location).await } else { Ok(None) };
        }
        let options = server::options(location)?;
        let address = open::display_address(&options);
        let (mut server, applied) = open::connect(&options).await?;
        let read = async {
            let id = sqlx::query_scalar(READ_IDENTITY).fetch_optional(&mut server).await;
            let id = unless_missing(id).map_err(|error| open::server_error(&address, &error))?;
            server.close().await.map_err(|error| open::server_error(&address, &error))?;
            Ok(id)
        };
        let id: Option<String> = open::within_limit(&address, read).await?;
        check_version(&applied, &POSTGRES, &address)?;
        Ok(id.map(StoreId::new))
    }

    /// Returns the address of the store at `location` as [`Self::address`] does, without a connection; `None` if
    /// `location` is not valid.
    pub fn address_of(location: &str) -> Option<String> {
        if !open::is_postgres(location) {
            return Some(location.to_owned());
        }
        server::options(location).ok().map(|options| open::display_address(&options))
    }

    /// Returns whether there is a store at `location`: a file, or a database with tables of cowhand.
    pub async fn exists(location: &str) -> Result<bool, StoreError> {
        if !open::is_postgres(location) {
            return Ok(!is_missing(Path::new(location)));
        }
        let options = server::options(location)?;
        let (server, applied) = open::connect(&options).await?;
        let address = open::display_address(&options);
        let close = async { server.close().await.map_err(|error| open::server_error(&address, &error)) };
        open::within_limit(&address, close).await?;
        Ok(!applied.is_empty())
    }
}

async fn check_file(path: &Path, location: &str) -> Result<Option<StoreId>, StoreError> {
    let error_of = |error: sqlx::Error| open::file_error(path, error);
    let mut file = open::options(path).read_only(true).connect().await.map_err(error_of)?;
    let applied = sqlx::query_scalar(open::APPLIED_MIGRATIONS).fetch_all(&mut file).await;
    let id = sqlx::query_scalar(READ_IDENTITY).fetch_optional(&mut file).await;
    file.close().await.map_err(error_of)?;
    check_version(&unless_missing(applied).map_err(error_of)?, &SQLITE, location)?;
    let id: Option<String> = unless_missing(id).map_err(error_of)?;
    Ok(id.map(StoreId::new))
}

/// Returns the empty value if the table does not exist.
pub(super) fn unless_missing<T: Default>(read: Result<T, sqlx::Error>) -> Result<T, sqlx::Error> {
    read.or_else(|error| if is_table_missing(&error) { Ok(T::default()) } else { Err(error) })
}

fn is_table_missing(error: &sqlx::Error) -> bool {
    /// `undefined_table` of PostgreSQL.
    const NO_TABLE: &str = "42P01";
    let Some(error) = error.as_database_error() else { return false };
    match error.try_downcast_ref::<PgDatabaseError>() {
        Some(error) => error.code() == NO_TABLE,
        // SQLite has no code of its own for this error.
        None => error.message().starts_with("no such table"),
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

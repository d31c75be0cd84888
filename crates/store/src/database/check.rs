//! Checks whether a store can be opened, without changing it, because another process may use it.

use std::fmt;
use std::path::Path;

use cowhand_core::id::JobId;
use serde::{Deserialize, Serialize};
use sqlx::Connection;
use sqlx::migrate::Migrator;
use sqlx::postgres::PgDatabaseError;

use super::error::{DriverError, StoreError};
use super::migrations::{POSTGRES, SQLITE, newest_of};
use super::sqlite::{FileUse, SqliteConnection};
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
    /// Fails if the store at `location` cannot be opened, for example because its server does not answer or a newer
    /// version wrote the store. A missing file is not an error, because [`Self::open`] creates the file. Returns the id
    /// of the store; `None` if the store has no id, because it does not exist or no daemon of this version has used it.
    pub async fn check_location(location: &str) -> Result<Option<StoreId>, StoreError> {
        if !open::is_postgres(location) {
            let path = Path::new(location);
            return if path.exists() { check_file(path, location) } else { Ok(None) };
        }
        let options = server::options(location)?;
        let address = open::display_address(&options);
        let (mut server, applied) = open::connect(&options).await?;
        let read = async {
            let id = sqlx::query_scalar(READ_IDENTITY).fetch_optional(&mut server).await;
            let id = unless_missing(id).map_err(|error| open::server_error(&address, error))?;
            server.close().await.map_err(|error| open::server_error(&address, error))?;
            Ok(id)
        };
        let id: Option<String> = open::within_limit(&address, read).await?;
        check_version(&applied, &POSTGRES, &address)?;
        Ok(id.map(StoreId::new))
    }

    /// Returns those of the jobs that the store in this file does not have. The file is not changed.
    pub fn unknown_jobs(path: &Path, jobs: &[JobId]) -> Result<Vec<JobId>, StoreError> {
        let error_of = |error: rusqlite::Error| open::file_error(path, error.into());
        let file = SqliteConnection::open(path, FileUse::ReadOnly).map_err(error_of)?;
        // Ids of jobs contain no quotes.
        let ids: Vec<String> = jobs.iter().map(|job| format!("'{job}'")).collect();
        let known = file.column(&format!("select id from jobs where id in ({})", ids.join(", ")));
        file.close().map_err(error_of)?;
        let known: Vec<String> = unless_missing(known).map_err(|error| open::file_error(path, error))?;
        Ok(jobs.iter().filter(|job| !known.iter().any(|id| id == job.as_str())).cloned().collect())
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
        let close = async { server.close().await.map_err(|error| open::server_error(&address, error)) };
        open::within_limit(&address, close).await?;
        Ok(!applied.is_empty())
    }
}

fn check_file(path: &Path, location: &str) -> Result<Option<StoreId>, StoreError> {
    let error_of = |error: rusqlite::Error| open::file_error(path, error.into());
    let file = SqliteConnection::open(path, FileUse::ReadOnly).map_err(error_of)?;
    let applied = file.column(open::APPLIED_MIGRATIONS);
    let id = file.column(READ_IDENTITY);
    file.close().map_err(error_of)?;
    let file_error = |error| open::file_error(path, error);
    check_version(&unless_missing(applied).map_err(file_error)?, &SQLITE, location)?;
    let id: Vec<String> = unless_missing(id).map_err(file_error)?;
    Ok(id.into_iter().next().map(StoreId::new))
}

/// Returns the result of a read, or the empty value if the read failed because its table does not exist.
pub(super) fn unless_missing<T: Default, E: Into<DriverError>>(read: Result<T, E>) -> Result<T, DriverError> {
    match read.map_err(Into::into) {
        Err(error) if is_table_missing(&error) => Ok(T::default()),
        read => read,
    }
}

fn is_table_missing(error: &DriverError) -> bool {
    /// `undefined_table` of PostgreSQL.
    const NO_TABLE: &str = "42P01";
    match error {
        DriverError::Postgres(error) => {
            let error =
                error.as_database_error().and_then(|error| error.try_downcast_ref::<PgDatabaseError>());
            error.is_some_and(|error| error.code() == NO_TABLE)
        }
        // SQLite has no code of its own for this error.
        DriverError::Sqlite(error) => error.to_string().starts_with("no such table"),
    }
}

/// Fails if a migration was applied that this version does not know.
fn check_version(applied: &[i64], migrations: &Migrator, location: &str) -> Result<(), StoreError> {
    let known = newest_of(migrations).unwrap_or_default();
    match applied.iter().copied().max().filter(|found| *found > known) {
        Some(found) => Err(StoreError::Newer { location: location.to_owned(), found, known }),
        None => Ok(()),
    }
}

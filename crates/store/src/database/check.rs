//! Checks whether a store can be opened, without changing it, because another process may use it.

use std::path::Path;
use std::str::FromStr as _;

use sqlx::migrate::Migrator;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection};

use super::error::StoreError;
use super::migrations::{POSTGRES, SQLITE};
use super::open;
use crate::Store;

impl Store {
    /// Fails if `location` cannot be opened: its server does not answer, or a newer version wrote it. A missing file is
    /// not an error, because opening creates it.
    pub async fn check_location(location: &str) -> Result<(), StoreError> {
        let open_error = |location: String| {
            move |why: sqlx::Error| StoreError::Open { location, why: open::server_message(&why) }
        };
        if !open::is_postgres(location) {
            let path = Path::new(location);
            if !path.exists() {
                return Ok(());
            }
            let options = open::options(path).read_only(true);
            let mut file = options.connect().await.map_err(open_error(location.to_owned()))?;
            let applied = sqlx::query_scalar(open::APPLIED_MIGRATIONS).fetch_all(&mut file).await;
            file.close().await.map_err(open_error(location.to_owned()))?;
            return check_version(&applied.unwrap_or_default(), &SQLITE, location);
        }
        let options = PgConnectOptions::from_str(location).map_err(open_error("postgres".to_owned()))?;
        let address = open::display_address(&options);
        let (server, applied) = open::connect(&options).await?;
        let close = async { server.close().await.map_err(open_error(address.clone())) };
        open::within_limit(&address, close).await?;
        check_version(&applied, &POSTGRES, &address)
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

//! Checks whether a store could be opened, without changing it: another process may use it.

use std::path::Path;
use std::str::FromStr as _;

use sqlx::migrate::Migrator;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection, Row};

use super::error::StoreError;
use super::migrations::{POSTGRES, SQLITE};
use super::open;
use crate::Store;

/// Newest migration of a store. A store without this table is new.
const NEWEST_MIGRATION: &str = "select max(version) from _sqlx_migrations";

impl Store {
    /// Fails if `place` cannot be opened: its server does not answer, or a newer version wrote it. A missing file is no
    /// error, since opening creates it.
    pub async fn check_place(place: &str) -> Result<(), StoreError> {
        let cannot = |place: String| {
            move |why: sqlx::Error| StoreError::Open { place, why: open::server_message(&why) }
        };
        if !open::is_postgres(place) {
            let path = Path::new(place);
            if !path.exists() {
                return Ok(());
            }
            let options = open::options(path).read_only(true);
            let mut file = options.connect().await.map_err(cannot(place.to_owned()))?;
            let found = sqlx::query(NEWEST_MIGRATION).fetch_one(&mut file).await.ok();
            let found = found.and_then(|row| row.try_get(0).ok());
            file.close().await.map_err(cannot(place.to_owned()))?;
            return known(found, &SQLITE, place);
        }
        let options = PgConnectOptions::from_str(place).map_err(cannot("postgres".to_owned()))?;
        let shown = open::shown(&options);
        let mut server = options.connect().await.map_err(cannot(shown.clone()))?;
        let found = sqlx::query(NEWEST_MIGRATION).fetch_one(&mut server).await.ok();
        let found = found.and_then(|row| row.try_get(0).ok());
        server.close().await.map_err(cannot(shown.clone()))?;
        known(found, &POSTGRES, &shown)
    }
}

fn known(found: Option<i64>, migrations: &Migrator, place: &str) -> Result<(), StoreError> {
    let known = migrations.iter().map(|migration| migration.version).max().unwrap_or_default();
    match found.filter(|found| *found > known) {
        Some(found) => Err(StoreError::Newer { place: place.to_owned(), found, known }),
        None => Ok(()),
    }
}

//! Checks whether a store could be opened, without changing it: another process may use it.

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
            let found = sqlx::query_scalar(open::APPLIED_MIGRATIONS).fetch_all(&mut file).await;
            file.close().await.map_err(cannot(place.to_owned()))?;
            return known(&found.unwrap_or_default(), &SQLITE, place);
        }
        let options = PgConnectOptions::from_str(place).map_err(cannot("postgres".to_owned()))?;
        let shown = open::shown(&options);
        let (server, found) = open::connect(&options).await?;
        let closed = async { server.close().await.map_err(cannot(shown.clone())) };
        open::within_limit(&shown, closed).await?;
        known(&found, &POSTGRES, &shown)
    }
}

fn known(found: &[i64], migrations: &Migrator, place: &str) -> Result<(), StoreError> {
    let known = open::newest_of(migrations).unwrap_or_default();
    match found.iter().copied().max().filter(|found| *found > known) {
        Some(found) => Err(StoreError::Newer { place: place.to_owned(), found, known }),
        None => Ok(()),
    }
}

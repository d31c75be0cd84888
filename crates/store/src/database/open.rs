//! Opening: where the store is, how it is set up, and the migrations that bring it up to date.

use std::fs::File;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection};

use super::changes::Committed;
use super::error::StoreError;
use super::file::{self, StoreFile};
use super::latency::Latency;
use super::migrations::{POSTGRES, SQLITE};
use super::writer::Writer;
use crate::{Database, Store};
use cowhand_system::clock::Clock;

/// Another process may hold the file for a moment, and a crowd all connections; longer than this is an error.
const SQLITE_BUSY_TIMEOUT: Duration = Duration::from_secs(10);
const SQLITE_READERS: u32 = 4;
const POSTGRES_CONNECTIONS: u32 = 16;

impl Store {
    /// `postgres://…` or the path of an SQLite file, which is made if it is not there.
    pub async fn open(place: &str) -> Result<Self, StoreError> {
        if is_postgres(place) {
            Self::open_postgres(place).await
        } else {
            Self::open_sqlite(Path::new(place)).await
        }
    }

    async fn open_sqlite(path: &Path) -> Result<Self, StoreError> {
        let place = path.display().to_string();
        let cannot =
            |why: &dyn std::fmt::Display| StoreError::Open { place: place.clone(), why: why.to_string() };
        let damaged_or = |error: sqlx::Error| match StoreError::connection(error) {
            StoreError::Damaged(why) => StoreError::DamagedFile { place: place.clone(), why },
            StoreError::Connection(error) => cannot(&error),
            other => other,
        };
        let options = options(path);
        let first = lock_folder(path).await;
        match std::fs::metadata(path) {
            Ok(found) if found.len() == 0 => return Err(StoreError::Empty { place }),
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => create(path, &place).await?,
            Err(error) => return Err(cannot(&error)),
        }
        let mut writer = options.connect().await.map_err(damaged_or)?;
        SQLITE.run(&mut writer).await.map_err(|error| migration_error(&place, &SQLITE, &error))?;
        drop(first);
        let file = StoreFile::opened(path).map_err(|error| cannot(&error))?;
        let readers = SqlitePoolOptions::new()
            .max_connections(SQLITE_READERS)
            // A connection that is opened later would find another file if this one was removed; those that are open can
            // still save it.
            .min_connections(SQLITE_READERS)
            .max_lifetime(None)
            .idle_timeout(None)
            // A file does not hang up; asking whether it is still there costs each read a way to its thread and back.
            .test_before_acquire(false)
            .connect_with(options.read_only(true))
            .await
            .map_err(damaged_or)?;
        let committed = Committed::new();
        let writer = Writer::start(writer, committed.clone(), file.clone());
        Ok(Self::of(Database::Sqlite { readers, writer, file }, committed))
    }

    async fn open_postgres(url: &str) -> Result<Self, StoreError> {
        let options = PgConnectOptions::from_str(url)
            .map_err(|error| StoreError::Open { place: "postgres".to_owned(), why: error.to_string() })?
            // A node that hangs in the middle of a transaction must not hold the others up for long.
            .options([("idle_in_transaction_session_timeout", "30s"), ("lock_timeout", "30s")]);
        let place = shown(&options);
        let cannot =
            |why: &dyn std::fmt::Display| StoreError::Open { place: place.clone(), why: why.to_string() };
        // Outside the pool, which would try for half a minute what a refused connection answers at once.
        let mut first = options.connect().await.map_err(|error| cannot(&told(&error)))?;
        POSTGRES.run(&mut first).await.map_err(|error| migration_error(&place, &POSTGRES, &error))?;
        first.close().await.map_err(|error| cannot(&error))?;
        let pool = PgPoolOptions::new()
            .max_connections(POSTGRES_CONNECTIONS)
            .acquire_timeout(SQLITE_BUSY_TIMEOUT)
            .connect_lazy_with(options);
        Ok(Self::of(Database::Postgres(pool), Committed::new()))
    }

    fn of(database: Database, committed: Committed) -> Self {
        let (latency, standing) = (Latency::new(), Arc::default());
        Self { database, committed, latency, standing, random: || fastrand::u64(..), clock: None }
    }

    /// The same store with another source of chance.
    #[must_use]
    pub fn with_random(mut self, random: fn() -> u64) -> Self {
        self.random = random;
        self
    }

    /// The same store with a boot clock, which then decides about what counts by duration.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }
}

/// What a server says of itself, without the line of its source that sqlx adds.
pub(super) fn told(error: &sqlx::Error) -> String {
    error.as_database_error().map_or_else(|| error.to_string(), |said| said.message().to_owned())
}

pub fn is_postgres(place: &str) -> bool {
    place.starts_with("postgres://") || place.starts_with("postgresql://")
}

/// Names the server and its database. The URL may hold a password: only these parts are ever shown.
pub(crate) fn shown(options: &PgConnectOptions) -> String {
    let (host, port) = (options.get_host(), options.get_port());
    format!("postgres://{host}:{port}/{}", options.get_database().unwrap_or_default())
}

pub(crate) fn options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .journal_mode(SqliteJournalMode::Wal)
        // A commit that was answered survives a power cut; group commit pays for it.
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(SQLITE_BUSY_TIMEOUT)
}

/// Makes a new store under another name and moves it into place when it is complete: so a file that is empty was not
/// left by a start that was killed.
async fn create(path: &Path, place: &str) -> Result<(), StoreError> {
    let cannot =
        |why: &dyn std::fmt::Display| StoreError::Open { place: place.to_owned(), why: why.to_string() };
    let new = file::beside(path, ".new");
    file::create(&new).map_err(|error| cannot(&error))?;
    let mut connection = options(&new).connect().await.map_err(|error| cannot(&error))?;
    SQLITE.run(&mut connection).await.map_err(|error| migration_error(place, &SQLITE, &error))?;
    connection.close().await.map_err(|error| cannot(&error))?;
    file::persist(&new, path).map_err(|error| cannot(&error))
}

/// Keeps others from migrating the same file at the same moment, which sqlx sees to on PostgreSQL only. A folder
/// that cannot be opened is left to SQLite to complain about. Not the file itself: closing it would take away
/// SQLite's own locks.
async fn lock_folder(file: &Path) -> Option<File> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = File::open(folder).ok()?;
    tokio::task::spawn_blocking(move || folder.lock().ok().map(|()| folder)).await.ok()?
}

fn migration_error(place: &str, known: &Migrator, error: &MigrateError) -> StoreError {
    match error {
        MigrateError::VersionMissing(found) => StoreError::Newer {
            place: place.to_owned(),
            found: *found,
            known: known.iter().map(|migration| migration.version).max().unwrap_or_default(),
        },
        other if super::error::is_damage(other) => {
            StoreError::DamagedFile { place: place.to_owned(), why: other.to_string() }
        }
        other => StoreError::Open { place: place.to_owned(), why: other.to_string() },
    }
}

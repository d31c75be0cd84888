//! Opening a store: its place, its settings, and its migrations.

use std::fs::File;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPoolOptions};
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

/// Another process may lock the file for a short time, and many callers may use all connections; a longer wait is an
/// error.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Migrations that were applied to a store. A store without this table is new.
pub(super) const APPLIED_MIGRATIONS: &str = "select version from _sqlx_migrations";
const SQLITE_READERS: u32 = 4;
const POSTGRES_CONNECTIONS: u32 = 16;

impl Store {
    /// Opens `postgres://…` or the path of an SQLite file, which is created if it does not exist.
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
            // A connection that is opened later would open another file if this one was removed; open connections can
            // still save it.
            .min_connections(SQLITE_READERS)
            .max_lifetime(None)
            .idle_timeout(None)
            // A file does not disconnect, and testing would cost each read a round trip to its thread.
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
            // A node that hangs in a transaction must not block others for long.
            .options([("idle_in_transaction_session_timeout", "30s"), ("lock_timeout", "30s")]);
        let place = shown(&options);
        let cannot =
            |why: &dyn std::fmt::Display| StoreError::Open { place: place.clone(), why: why.to_string() };
        // The pool would retry a refused connection for half a minute.
        let (mut first, applied) = connect(&options).await?;
        let migrated = async {
            POSTGRES.run(&mut first).await.map_err(|error| migration_error(&place, &POSTGRES, &error))
        };
        // A migration may take long, or wait for one of another node.
        if POSTGRES.iter().all(|known| applied.contains(&known.version)) {
            within_limit(&place, migrated).await?;
        } else {
            migrated.await?;
        }
        let closed = async { first.close().await.map_err(|error| cannot(&error)) };
        within_limit(&place, closed).await?;
        let pool = PgPoolOptions::new()
            .max_connections(POSTGRES_CONNECTIONS)
            .acquire_timeout(ANSWER_TIMEOUT)
            .connect_lazy_with(options);
        Ok(Self::of(Database::Postgres(pool), Committed::new()))
    }

    fn of(database: Database, committed: Committed) -> Self {
        let (latency, standing, patience) = (Latency::new(), Arc::default(), Arc::default());
        Self { database, committed, latency, standing, patience, random: || fastrand::u64(..), clock: None }
    }

    /// Replaces the source of random numbers.
    #[must_use]
    pub fn with_random(mut self, random: fn() -> u64) -> Self {
        self.random = random;
        self
    }

    /// Sets the boot clock, which then decides about durations.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }
}

/// Connects to a server, and asks it for the migrations of the store, so that it has answered a statement.
pub(super) async fn connect(options: &PgConnectOptions) -> Result<(PgConnection, Vec<i64>), StoreError> {
    let place = shown(options);
    let connected = async {
        let cannot =
            |error: sqlx::Error| StoreError::Open { place: place.clone(), why: server_message(&error) };
        let mut server = options.connect().await.map_err(cannot)?;
        let applied = sqlx::query_scalar(APPLIED_MIGRATIONS).fetch_all(&mut server).await;
        Ok((server, applied.unwrap_or_default()))
    };
    within_limit(&place, connected).await
}

/// Runs a call to the server of a store that is opened, which has to answer within [`ANSWER_TIMEOUT`].
pub(super) async fn within_limit<T>(
    place: &str,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let silent = |_| StoreError::Silent { place: place.to_owned(), seconds: ANSWER_TIMEOUT.as_secs() };
    tokio::time::timeout(ANSWER_TIMEOUT, call).await.map_err(silent)?
}

/// Returns the newest migration that this version knows.
pub(super) fn newest_of(migrations: &Migrator) -> Option<i64> {
    migrations.iter().map(|migration| migration.version).max()
}

/// Formats the message of a server, without the source line that sqlx adds.
pub(super) fn server_message(error: &sqlx::Error) -> String {
    error.as_database_error().map_or_else(|| error.to_string(), |said| said.message().to_owned())
}

pub fn is_postgres(place: &str) -> bool {
    place.starts_with("postgres://") || place.starts_with("postgresql://")
}

/// Formats the server and its database. The URL may contain a password, so only these parts are shown.
pub(crate) fn shown(options: &PgConnectOptions) -> String {
    let (host, port) = (options.get_host(), options.get_port());
    format!("postgres://{host}:{port}/{}", options.get_database().unwrap_or_default())
}

pub(crate) fn options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .journal_mode(SqliteJournalMode::Wal)
        // A confirmed commit survives a power failure; group commit makes this affordable.
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(ANSWER_TIMEOUT)
}

/// Creates a store under another name and moves it into place when it is complete, so a killed start leaves no empty
/// file.
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

/// Locks the folder, so that no other process migrates the same file; sqlx does this only on PostgreSQL. If the folder
/// cannot be opened, SQLite reports the error. The file itself is not locked, because closing it would release SQLite's
/// own locks.
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
            known: newest_of(known).unwrap_or_default(),
        },
        other if super::error::is_damage(other) => {
            StoreError::DamagedFile { place: place.to_owned(), why: other.to_string() }
        }
        other => StoreError::Open { place: place.to_owned(), why: other.to_string() },
    }
}

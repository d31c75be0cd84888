//! Opening a store: its location, its settings, and its migrations.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions, Connection};

use super::changes::Committed;
use super::check::unless_missing;
use super::counts::StatementCounter;
use super::error::{DriverError, StoreError};
use super::file::{self, StoreFile};
use super::latency::Latency;
use super::migrations::{MigrationFailure, POSTGRES, SQLITE, migrate_file, newest_of};
use super::refusal::refusal;
use super::server;
use super::sqlite::{FileUse, Readers, SqliteConnection};
use super::writer::Writer;
use crate::{Database, Store};
use cowhand_system::clock::Clock;

/// Longest wait for a lock of the file, for a free connection or for an answer of the server. A longer wait is an
/// error. The server has more time to answer a statement of a verb (`STATEMENT_TIMEOUT`).
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Query for the migrations that were applied to a store. A store without this table is new.
pub(super) const APPLIED_MIGRATIONS: &str = "select version from _sqlx_migrations";

impl Store {
    /// Opens `postgres://…` or the path of an SQLite file, which is created if it does not exist.
    pub async fn open(location: &str) -> Result<Self, StoreError> {
        if is_postgres(location) {
            Self::open_postgres(location).await
        } else {
            Self::open_sqlite(Path::new(location)).await
        }
    }

    async fn open_sqlite(path: &Path) -> Result<Self, StoreError> {
        let location = path.display().to_string();
        let open_error = |why: &dyn std::fmt::Display| StoreError::Open {
            location: location.clone(),
            why: why.to_string(),
        };
        let damaged_or_open_error = |error: rusqlite::Error| file_error(path, error.into());
        let folder_lock = lock_folder(path).await;
        match std::fs::metadata(path) {
            Ok(metadata) if metadata.len() == 0 => return Err(StoreError::Empty { location }),
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => create(path, &location)?,
            Err(error) => return Err(open_error(&error)),
        }
        let mut writer = SqliteConnection::open(path, FileUse::Durable).map_err(damaged_or_open_error)?;
        migrate_file(&mut writer).map_err(|error| file_migration_error(path, &location, error))?;
        drop(folder_lock);
        let file = StoreFile::opened(path).map_err(|error| open_error(&error))?;
        let readers = Readers::open(path).map_err(damaged_or_open_error)?;
        let (committed, counter) = (Committed::new(), StatementCounter::default());
        let writer = Writer::start(writer, committed.clone(), file.clone(), counter.clone())
            .map_err(|error| open_error(&error))?;
        Ok(Self::of(Database::Sqlite { readers, writer, file }, committed, counter))
    }

    async fn open_postgres(url: &str) -> Result<Self, StoreError> {
        let options = server::options(url)?;
        let location = display_address(&options);
        let open_error = |why: &dyn std::fmt::Display| StoreError::Open {
            location: location.clone(),
            why: why.to_string(),
        };
        // The first connection is opened without the pool, which would retry a refused connection until its timeout.
        let (mut connection, applied) = connect(&options).await?;
        let migrate = async {
            POSTGRES.run(&mut connection).await.map_err(|error| migration_error(&location, &POSTGRES, error))
        };
        // The limit applies only if there is nothing to migrate: a migration may take long, or wait for the migration
        // of another node.
        if POSTGRES.iter().all(|known| applied.contains(&known.version)) {
            within_limit(&location, migrate).await?;
        } else {
            migrate.await?;
        }
        let close = async { connection.close().await.map_err(|error| open_error(&error)) };
        within_limit(&location, close).await?;
        let database = Database::Postgres(server::pool(options));
        Ok(Self::of(database, Committed::new(), StatementCounter::default()))
    }

    fn of(database: Database, committed: Committed, counter: StatementCounter) -> Self {
        let (latency, health, shutdown_limit) = (Latency::new(), Arc::default(), Arc::default());
        Self {
            database,
            committed,
            latency,
            counter,
            health,
            shutdown_limit,
            random: || fastrand::u64(..),
            clock: None,
        }
    }

    /// Replaces the source of random numbers.
    #[must_use]
    pub fn with_random(mut self, random: fn() -> u64) -> Self {
        self.random = random;
        self
    }

    /// Sets the clock by whose boot time durations are measured.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }
}

/// Connects to a server and reads the applied migrations; the list is empty if the database has no tables of cowhand.
/// If the call succeeds, the server answers.
pub(super) async fn connect(options: &PgConnectOptions) -> Result<(PgConnection, Vec<i64>), StoreError> {
    let location = display_address(options);
    let connected = async {
        let mut server = options.connect().await.map_err(|error| server_error(&location, error))?;
        let applied = sqlx::query_scalar(APPLIED_MIGRATIONS).fetch_all(&mut server).await;
        let applied = unless_missing(applied).map_err(|error| server_error(&location, error))?;
        Ok((server, applied))
    };
    within_limit(&location, connected).await
}

/// Returns the error for a file that cannot be opened or read.
pub(super) fn file_error(path: &Path, error: DriverError) -> StoreError {
    let location = path.display().to_string();
    match StoreError::connection(error) {
        StoreError::Damaged(why) => StoreError::DamagedAtOpen { location, why },
        StoreError::Connection(error) => file::disk_error(path, &error)
            .unwrap_or_else(|| StoreError::Open { location, why: error.to_string() }),
        other => other,
    }
}

/// Returns the error for a server that cannot be used. `location` is its address without the password.
pub(super) fn server_error(location: &str, error: impl Into<DriverError>) -> StoreError {
    let error = error.into();
    let refused = match &error {
        DriverError::Postgres(error) => refusal(error, || location.to_owned()),
        DriverError::Sqlite(_) => None,
    };
    refused.unwrap_or_else(|| StoreError::Open { location: location.to_owned(), why: error.to_string() })
}

/// Runs a call to the server while a store is opened. Fails if the call takes longer than [`ANSWER_TIMEOUT`].
pub(super) async fn within_limit<T>(
    location: &str,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let no_answer =
        |_| StoreError::OpenTimeout { location: location.to_owned(), seconds: ANSWER_TIMEOUT.as_secs() };
    tokio::time::timeout(ANSWER_TIMEOUT, call).await.map_err(no_answer)?
}

/// Formats the message of a server, without the source line that sqlx adds.
pub(super) fn server_message(error: &sqlx::Error) -> String {
    error
        .as_database_error()
        .map_or_else(|| error.to_string(), |server_error| server_error.message().to_owned())
}

pub fn is_postgres(location: &str) -> bool {
    location.starts_with("postgres://") || location.starts_with("postgresql://")
}

/// Formats the server and its database. The URL may contain a password, so only these parts are shown.
pub(crate) fn display_address(options: &PgConnectOptions) -> String {
    let (host, port) = (options.get_host(), options.get_port());
    format!("postgres://{host}:{port}/{}", options.get_database().unwrap_or_default())
}

/// Creates a store under another name and renames it when it is complete, so that a killed start leaves no empty file.
/// The file is synced once, before it gets its final name. The migrations before that need no sync and no journal on
/// disk, because an interrupted creation starts again from the beginning.
fn create(path: &Path, location: &str) -> Result<(), StoreError> {
    let open_error = |why: &dyn std::fmt::Display| StoreError::Open {
        location: location.to_owned(),
        why: why.to_string(),
    };
    let new = file::beside(path, ".new");
    file::create(&new).map_err(|error| open_error(&error))?;
    let disk_or_open_error = |error: rusqlite::Error| {
        let error = error.into();
        file::disk_error(path, &error).unwrap_or_else(|| open_error(&error))
    };
    let mut connection = SqliteConnection::open(&new, FileUse::Unsynced).map_err(disk_or_open_error)?;
    migrate_file(&mut connection).map_err(|error| file_migration_error(path, location, error))?;
    connection.close().map_err(disk_or_open_error)?;
    file::persist(&new, path).map_err(|error| open_error(&error))
}

/// Locks the folder, so that no other process migrates the same file. The file itself is not locked, because closing it
/// would release SQLite's own locks. Returns `None` if the folder cannot be locked. If the file cannot be opened
/// either, SQLite reports the error.
async fn lock_folder(file: &Path) -> Option<File> {
    let folder = File::open(file::folder_of(file)).ok()?;
    tokio::task::spawn_blocking(move || folder.lock().ok().map(|()| folder)).await.ok()?
}

/// Returns the error for a file whose tables cannot be made.
fn file_migration_error(path: &Path, location: &str, error: MigrationFailure) -> StoreError {
    match error {
        MigrationFailure::List(error) => migration_error(location, &SQLITE, error),
        MigrationFailure::Statement(error) => match StoreError::connection(error) {
            StoreError::Damaged(why) => StoreError::DamagedAtOpen { location: location.to_owned(), why },
            StoreError::Connection(error) => {
                file::disk_error(path, &error).unwrap_or_else(|| tables_error(location, &error))
            }
            other => other,
        },
    }
}

fn migration_error(location: &str, migrations: &Migrator, error: MigrateError) -> StoreError {
    match error {
        MigrateError::VersionMissing(found) => StoreError::Newer {
            location: location.to_owned(),
            found,
            known: newest_of(migrations).unwrap_or_default(),
        },
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => {
            refusal(&error, || location.to_owned()).unwrap_or_else(|| tables_error(location, &error.into()))
        }
        other => StoreError::Open { location: location.to_owned(), why: other.to_string() },
    }
}

fn tables_error(location: &str, error: &DriverError) -> StoreError {
    StoreError::Open { location: location.to_owned(), why: format!("its tables cannot be made: {error}") }
}

#[cfg(test)]
mod tests {
    use std::str::FromStr as _;

    use cowhand_core::store_address::check_store_address;

    use super::*;

    /// `config check` refuses each address that no start can use.
    #[test]
    fn core_refuses_the_addresses_that_the_driver_refuses() {
        const ONLY_CORE_REFUSES: [&str; 4] = [
            "postgres://u:a@b@h/x",
            "postgres://u:1/b@h/x",
            "postgres://u:1?b@h/x",
            "postgres://h/x?unknown=1&&a",
        ];
        for address in [
            "postgres://h/x",
            "postgresql://u:p@h:5432/x?sslmode=require&application_name=a",
            "postgres:///x",
            "postgres://",
            "postgres://h",
            "postgres://h:/x",
            "postgres://h:0/x",
            "postgres://h:65535/x",
            "postgres://h:65536/x",
            "postgres://u:p@127.0.0.1:99999/x",
            "postgres://h:000000005432/x",
            "postgres://h:+1/x",
            "postgres://h:a/x",
            "postgres://h:1:2/x",
            "postgres://u:a/b@h/x",
            "postgres://u:1/b@h/x",
            "postgres://u:1?b@h/x",
            "postgres://h/x?options[search_path]=a&&%70ort=1",
            "postgres://u:a?b@h/x",
            "postgres://u:a#b@h/x",
            "postgres://u:a@b@h/x",
            "postgres://u:a%2Fb@h/x",
            "postgres://u:100%@h/x",
            "postgres://u:%FF@h/x",
            "postgres://%FF@h/x",
            "postgres://h/%FF",
            "postgres://u@/x",
            "postgres://u:p@:5432/x",
            "postgres://:5432/x",
            "postgres://u@%2Frun%2Fpg/x",
            "postgres:///x?host=/run/pg",
            "postgres://[::1]/x",
            "postgres://u@[::1]:5432/x",
            "postgres://[::1]:x/x",
            "postgres://[::1]5432/x",
            "postgres://[::1/x",
            "postgres://[h]/x",
            "postgres://h/x?sslmode=bogus",
            "postgres://h/x?sslmode=",
            "postgres://h/x?ssl-mode=Verify-Full",
            "postgres://h/x?sslmode=verify%2Dca",
            "postgres://h/x?sslmode=disable#sslmode=bogus",
            "postgres://h/x?port=99999",
            "postgres://h/x?port=5433",
            "postgres://h/x?hostaddr=h",
            "postgres://h/x?hostaddr=::1",
            "postgres://h/x?statement-cache-capacity=many",
            "postgres://h/x?statement-cache-capacity=7",
            "postgres://h/x?unknown=1&&a",
            " postgres://h/x\n",
            "postgres://h\n/x",
        ] {
            let driver = PgConnectOptions::from_str(address);
            let is_accepted = driver.is_ok() && !ONLY_CORE_REFUSES.contains(&address);
            assert_eq!(check_store_address(address).is_ok(), is_accepted, "{address:?}: {driver:?}");
        }
    }
}

//! The health of the store: known damage, failed writes, and checks.

use std::sync::{Mutex, OnceLock, PoisonError};

use jiff::Timestamp;

use super::db::args;
use super::dialect::statements;
use super::error::{DriverError, StoreError};
use super::open;
use super::refusal::refusal;
use crate::{Database, Store};

statements! {
    WRITE_PROBE = same "insert into write_probe (id, probed_at) values (1, $1) \
        on conflict (id) do update set probed_at = excluded.probed_at";
}

/// Returns true if the server cannot be reached, or closed the connection.
pub(super) fn is_unreachable(error: &DriverError) -> bool {
    use sqlx::Error::{Io, PoolTimedOut, Tls};
    matches!(error, DriverError::Postgres(PoolTimedOut | Io(_) | Tls(_)))
}

/// Returns the error for a server that does not answer, cannot write or refuses the request, if that is the cause.
fn server_cause(error: &DriverError, location: impl Fn() -> String) -> Option<StoreError> {
    const DISK_FULL: &str = "53100";
    const READ_ONLY_SQL_TRANSACTION: &str = "25006";
    if is_unreachable(error) {
        return Some(StoreError::NoAnswer { location: location(), why: error.to_string() });
    }
    let DriverError::Postgres(error) = error else { return None };
    let (code, why) = (error.as_database_error()?.code()?, open::server_message(error));
    match code.as_ref() {
        DISK_FULL => Some(StoreError::ServerFull { location: location(), why }),
        READ_ONLY_SQL_TRANSACTION => Some(StoreError::ServerReadOnly { location: location(), why }),
        _ => refusal(error, location),
    }
}

/// Health of the store, according to the results of the last calls.
#[derive(Debug, Default)]
pub(crate) struct StoreHealth {
    /// Damage that was found. It stays set until the store is opened again.
    damage: OnceLock<String>,
    /// Reason why the last write failed, if the store was the cause.
    write_error: Mutex<Option<String>>,
}

impl StoreHealth {
    pub(crate) fn record_read<T>(&self, answer: &Result<T, StoreError>) {
        if let Err(error @ StoreError::Damaged(_)) = answer {
            self.damage.get_or_init(|| error.to_string());
        }
    }

    pub(crate) fn record_write<T>(&self, answer: &Result<T, StoreError>) {
        self.record_read(answer);
        let write_error = match answer {
            Err(
                error @ (StoreError::Commit(_)
                | StoreError::Disk { .. }
                | StoreError::ServerFull { .. }
                | StoreError::ServerReadOnly { .. }
                | StoreError::ServerRefuses { .. }
                | StoreError::NoRights { .. }
                | StoreError::Locked { .. }
                | StoreError::Connection(_)
                | StoreError::NoAnswer { .. }
                | StoreError::Statement { .. }),
            ) => Some(error.to_string()),
            _ => None,
        };
        *self.write_error.lock().unwrap_or_else(PoisonError::into_inner) = write_error;
    }
}

impl Store {
    /// Returns the reason why nothing can be written, if there is one: the file was removed, replaced or damaged, or
    /// the last write failed.
    pub fn write_problem(&self) -> Option<String> {
        if let Some(damage) = self.health.damage.get() {
            return Some(damage.clone());
        }
        if let Database::Sqlite { file, .. } = &self.database
            && let Err(error) = file.check()
        {
            return Some(error.to_string());
        }
        self.health.write_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces an error by its cause, if one is found: the file is missing or was replaced, the disk is full or
    /// read-only, or the server does not answer, refuses the request or cannot write.
    pub(crate) fn with_cause(&self, error: StoreError) -> StoreError {
        match (&self.database, &error) {
            (
                Database::Sqlite { file, .. },
                StoreError::Connection(source) | StoreError::Statement { source, .. },
            ) => file.check().err().or_else(|| file.disk_error(source)).unwrap_or(error),
            (Database::Sqlite { file, .. }, StoreError::Damaged(_)) => file.check().err().unwrap_or(error),
            (
                Database::Postgres(pool),
                StoreError::Connection(source) | StoreError::Statement { source, .. },
            ) => {
                let location = || open::display_address(&pool.connect_options());
                server_cause(source, location).unwrap_or(error)
            }
            _ => error,
        }
    }

    /// Tests whether the store can be written: writes one row and waits for the commit.
    pub async fn test_write(&self, now: Timestamp) -> Result<(), StoreError> {
        self.write(move |tx| Box::pin(async move { tx.execute(WRITE_PROBE, args![now]).await.map(drop) }))
            .await
    }
}

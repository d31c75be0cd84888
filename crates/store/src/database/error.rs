//! Errors of the store, with the next step for the user.

use cowhand_core::id::{JobId, ScheduleId};
use cowhand_core::job::JobChangeRefused;
use sqlx::postgres::PgDatabaseError;
use sqlx::sqlite::SqliteError;

use cowhand_system::disk::DiskProblem;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("cannot open the store at {location}: {why}")]
    Open { location: String, why: String },
    #[error(
        "the store at {location} is an empty file: its history is lost. Restore a backup with `cowhand restore \
         FILE`, or move the file away to start with an empty history"
    )]
    Empty { location: String },
    #[error(
        "cannot open the store at {location}: it is damaged: {why}. Restore a backup with `cowhand restore FILE`, \
         or move the file away to start with an empty history"
    )]
    DamagedAtOpen { location: String, why: String },
    #[error(
        "the store is damaged: {0}. Stop the daemon with `cowhand stop --keep-agents`, then restore a backup with \
         `cowhand restore FILE`"
    )]
    Damaged(String),
    #[error(
        "the daemon uses {location}, but this file {how}, so the daemon accepts no new work. Save the data that the daemon \
         still has with `cowhand backup FILE`, then run `cowhand stop --keep-agents`, `cowhand restore FILE` and \
         `cowhand start -d`"
    )]
    FileChanged { location: String, how: String },
    #[error(
        "cannot open {location}: permission denied. The daemon accepts no new work until it can; {advice}. Running \
         agents continue, and the daemon continues by itself as soon as it can open the file"
    )]
    PermissionDenied { location: String, advice: String },
    #[error("the store is PostgreSQL: make a backup with `pg_dump` and restore it with `pg_restore`")]
    PostgresBackup,
    #[error(
        "the store at {location} was written by a newer cowhand (migration {found}; this version knows only migrations up to \
         {known}); use that version, or restore a backup from before the upgrade"
    )]
    Newer { location: String, found: i64, known: i64 },
    #[error(
        "the PostgreSQL server of the store, {location}, does not answer ({why}); check that it runs and can be reached from \
         here. Running agents continue, and the daemon continues by itself as soon as the server answers"
    )]
    NoAnswer { location: String, why: String },
    #[error(
        "the PostgreSQL server of the store, {location}, has not answered within {seconds} seconds; check that a PostgreSQL \
         server runs there, that `store` in the config names its host and port, and that no firewall or overload keeps it \
         from answering"
    )]
    OpenTimeout { location: String, seconds: u64 },
    /// `folder` is the folder of the store's file.
    #[error("{}", .problem.sentence(.folder))]
    Disk { problem: DiskProblem, folder: String },
    #[error(
        "the disk of the PostgreSQL server of the store, {location}, is full ({why}), so nothing can be written; free space on it, \
         and cowhand continues by itself"
    )]
    ServerFull { location: String, why: String },
    #[error(
        "the PostgreSQL server of the store, {location}, is read-only ({why}), so nothing can be written; make it writable \
         (`default_transaction_read_only`), or name the primary server in `store` if it is a standby, and cowhand continues \
         by itself"
    )]
    ServerReadOnly { location: String, why: String },
    #[error("the PostgreSQL server of the store, {location}, refuses the connection ({why}); {advice}")]
    ServerRefuses { location: String, why: String, advice: &'static str },
    #[error(
        "the user of the store at {location} does not have the rights that cowhand needs ({why}). Grant them as the owner \
         of the database: `grant usage, create on schema public to USER`, and for tables of another user `alter table \
         TABLE owner to USER`"
    )]
    NoRights { location: String, why: String },
    #[error(
        "another connection holds a lock in the database of the store, {location} ({why}). Find it with `select pid, state, \
         query from pg_stat_activity` and let it commit, or end it with `select pg_terminate_backend(PID)`; cowhand then \
         continues by itself"
    )]
    Locked { location: String, why: String },
    #[error("the store's connection failed: {}", text_without_line(.0))]
    Connection(#[source] sqlx::Error),
    #[error("the statement {statement} failed: {}", text_without_line(.source))]
    Statement { statement: &'static str, source: sqlx::Error },
    #[error(
        "the store contains a value that cowhand cannot read: {what}. Restore a backup: an SQLite store with \
         `cowhand restore FILE`, a PostgreSQL store with `pg_restore`"
    )]
    Unreadable { what: String },
    #[error("there is no job {0}")]
    NoJob(JobId),
    #[error("there is no schedule with id {0}")]
    NoSchedule(ScheduleId),
    #[error(transparent)]
    Refused(#[from] JobChangeRefused),
    #[error("no free job id was found in {0} tries")]
    NoFreeId(usize),
    #[error("a verb of the store panicked; its changes were not written")]
    Panicked,
    #[error("the store is closed")]
    Closed,
    #[error("the commit failed and nothing of it was written: {0}")]
    Commit(String),
}

impl StoreError {
    /// Replaces the location in an error of opening a store. A caller that opened a copy of the file names the original
    /// file.
    #[must_use]
    pub fn at(self, location: String) -> Self {
        match self {
            Self::Open { why, .. } => Self::Open { location, why },
            Self::Empty { .. } => Self::Empty { location },
            Self::DamagedAtOpen { why, .. } => Self::DamagedAtOpen { location, why },
            Self::Newer { found, known, .. } => Self::Newer { location, found, known },
            other => other,
        }
    }

    pub(crate) fn connection(error: sqlx::Error) -> Self {
        match error {
            sqlx::Error::PoolClosed => Self::Closed,
            error if is_damage(&error) => Self::Damaged(error.to_string()),
            error => Self::Connection(error),
        }
    }

    pub(crate) fn statement(statement: &'static str, source: sqlx::Error) -> Self {
        match source {
            sqlx::Error::PoolClosed => Self::Closed,
            source if is_damage(&source) => Self::Damaged(source.to_string()),
            source => Self::Statement { statement, source },
        }
    }
}

/// Formats an error without the line of the server's source code that sqlx adds.
pub(super) fn text_without_line(error: &sqlx::Error) -> String {
    match error.as_database_error().and_then(|error| error.try_downcast_ref::<PgDatabaseError>()) {
        Some(server_error) => server_error.message().to_owned(),
        None => error.to_string(),
    }
}

/// Returns true if SQLite reports that the file is malformed or not a database.
pub(crate) fn is_damage(error: &(dyn std::error::Error + 'static)) -> bool {
    const SQLITE_CORRUPT: i32 = 11;
    const SQLITE_NOTADB: i32 = 26;
    has_sqlite_code(error, &[SQLITE_CORRUPT, SQLITE_NOTADB])
}

/// Returns true if SQLite reports an error that a full or read-only disk can cause.
pub(crate) fn may_be_disk(error: &(dyn std::error::Error + 'static)) -> bool {
    const SQLITE_READONLY: i32 = 8;
    const SQLITE_IOERR: i32 = 10;
    const SQLITE_FULL: i32 = 13;
    const SQLITE_CANTOPEN: i32 = 14;
    has_sqlite_code(error, &[SQLITE_READONLY, SQLITE_IOERR, SQLITE_FULL, SQLITE_CANTOPEN])
}

/// Returns true if the error, or one of its causes, is an error of SQLite with one of these primary codes.
fn has_sqlite_code(error: &(dyn std::error::Error + 'static), codes: &[i32]) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        let code = match error.downcast_ref::<sqlx::Error>() {
            Some(sqlx::Error::Database(error)) if error.try_downcast_ref::<SqliteError>().is_some() => {
                error.code()
            }
            _ => None,
        };
        // The low byte is the primary code. The other bytes belong to the extended code.
        let code = code.and_then(|code| code.parse::<i32>().ok()).map(|code| code & 0xff);
        if code.is_some_and(|code| codes.contains(&code)) {
            return true;
        }
        next = error.source();
    }
    false
}

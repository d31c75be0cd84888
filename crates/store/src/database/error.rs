//! Errors of the store, with the next step for the user.

use cowhand_core::id::{JobId, ScheduleId};
use cowhand_core::job::JobChangeRefused;
use rusqlite::ffi::ErrorCode;
use sqlx::postgres::PgDatabaseError;

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
        "{}. Running agents continue, and the daemon continues by itself as soon as the server answers",
        no_answer(.location, .why)
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
    #[error("{}, and cowhand continues by itself", server_full(.location, .why))]
    ServerFull { location: String, why: String },
    #[error("{}, and cowhand continues by itself", server_read_only(.location, .why))]
    ServerReadOnly { location: String, why: String },
    #[error("the PostgreSQL server of the store, {location}, refuses the connection ({why}); {advice}")]
    ServerRefuses { location: String, why: String, advice: &'static str },
    #[error(
        "the user of the store at {location} does not have the rights that cowhand needs ({why}). Grant them as the owner \
         of the database: `grant usage, create on schema public to USER`, and for tables of another user `alter table \
         TABLE owner to USER`"
    )]
    NoRights { location: String, why: String },
    #[error("{}; cowhand then continues by itself", locked(.location, .why))]
    Locked { location: String, why: String },
    #[error("the store's connection failed: {0}")]
    Connection(#[source] DriverError),
    #[error("the statement {statement} failed: {source}")]
    Statement { statement: &'static str, source: DriverError },
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
    #[error("a verb of the store waited for something other than the store; its changes were not written")]
    Waited,
    #[error("the store is closed")]
    Closed,
    #[error("the commit failed and nothing of it was written: {0}")]
    Commit(String),
}

fn no_answer(location: &str, why: &str) -> String {
    format!(
        "the PostgreSQL server of the store, {location}, does not answer ({why}); check that it runs and can be reached from \
         here"
    )
}

fn server_full(location: &str, why: &str) -> String {
    format!(
        "the disk of the PostgreSQL server of the store, {location}, is full ({why}), so nothing can be written; free space \
         on it"
    )
}

fn server_read_only(location: &str, why: &str) -> String {
    format!(
        "the PostgreSQL server of the store, {location}, is read-only ({why}), so nothing can be written; make it writable \
         (`default_transaction_read_only`), or name the primary server in `store` if it is a standby"
    )
}

fn locked(location: &str, why: &str) -> String {
    format!(
        "another connection holds a lock in the database of the store, {location} ({why}). Find it with `select pid, state, \
         query from pg_stat_activity` and let it commit, or end it with `select pg_terminate_backend(PID)`"
    )
}

impl StoreError {
    /// Returns the message for a process other than a running daemon. It does not say that cowhand continues by itself.
    pub fn sentence_without_daemon(&self) -> String {
        match self {
            Self::Disk { problem, folder } => problem.sentence_without_daemon(folder),
            Self::NoAnswer { location, why } => no_answer(location, why),
            Self::ServerFull { location, why } => server_full(location, why),
            Self::ServerReadOnly { location, why } => server_read_only(location, why),
            Self::Locked { location, why } => locked(location, why),
            other => other.to_string(),
        }
    }

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

    pub(crate) fn connection(error: impl Into<DriverError>) -> Self {
        match error.into() {
            DriverError::Postgres(sqlx::Error::PoolClosed) => Self::Closed,
            error if error.is_damage() => Self::Damaged(error.to_string()),
            error => Self::Connection(error),
        }
    }

    pub(crate) fn statement(statement: &'static str, error: impl Into<DriverError>) -> Self {
        match Self::connection(error) {
            Self::Connection(source) => Self::Statement { statement, source },
            other => other,
        }
    }
}

/// An error of the library of a database.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    #[error("{}", sqlite_text(.0))]
    Sqlite(#[from] rusqlite::Error),
    #[error("{}", text_without_line(.0))]
    Postgres(#[from] sqlx::Error),
}

impl DriverError {
    /// Returns true if SQLite reports that the file is malformed or not a database.
    pub(super) fn is_damage(&self) -> bool {
        matches!(self.sqlite_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
    }

    /// Returns true if SQLite reports an error that a full or read-only disk can cause.
    pub(super) fn may_be_disk(&self) -> bool {
        matches!(
            self.sqlite_code(),
            Some(
                ErrorCode::ReadOnly
                    | ErrorCode::SystemIoFailure
                    | ErrorCode::DiskFull
                    | ErrorCode::CannotOpen
            )
        )
    }

    fn sqlite_code(&self) -> Option<ErrorCode> {
        match self {
            Self::Sqlite(error) => error.sqlite_error_code(),
            Self::Postgres(_) => None,
        }
    }
}

/// Formats an error with the number that SQLite's documentation describes.
fn sqlite_text(error: &rusqlite::Error) -> String {
    match error.sqlite_error() {
        Some(code) => format!("{error} (SQLite error {})", code.extended_code),
        None => error.to_string(),
    }
}

/// Formats an error without the line of the server's source code that sqlx adds.
pub(super) fn text_without_line(error: &sqlx::Error) -> String {
    match error.as_database_error().and_then(|error| error.try_downcast_ref::<PgDatabaseError>()) {
        Some(server_error) => server_error.message().to_owned(),
        None => error.to_string(),
    }
}

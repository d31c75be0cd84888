//! Errors of the store, with the next step for the user.

use cowhand_core::id::{JobId, ScheduleId};
use cowhand_core::job::Refused;
use sqlx::sqlite::SqliteError;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("cannot open the store at {location}: {why}")]
    Open { location: String, why: String },
    #[error(
        "the store at {location} is empty, which cowhand never leaves behind: its history is lost; `cowhand restore FILE` \
         brings a backup back, or move the file away to begin with an empty history"
    )]
    Empty { location: String },
    #[error(
        "cannot open the store at {location}: it is damaged: {why}; `cowhand restore FILE` brings a backup back, or move the file away to \
         begin with an empty history"
    )]
    DamagedFile { location: String, why: String },
    #[error(
        "the store is damaged: {0}; `cowhand stop --keep-agents` ends the daemon, `cowhand restore FILE` brings a \
         backup back"
    )]
    Damaged(String),
    #[error(
        "{location} {how} while it was in use, so nothing is accepted that would be lost; `cowhand backup FILE` saves what \
         the daemon still has, then `cowhand stop --keep-agents`, `cowhand restore FILE` and `cowhand start -d`"
    )]
    Replaced { location: String, how: String },
    #[error(
        "cannot reach {location}: permission denied, so nothing is accepted that could be lost; {advice}. Running agents go on, \
         and the daemon goes on by itself as soon as it reaches the file"
    )]
    Unreachable { location: String, advice: String },
    #[error("the store is PostgreSQL: `pg_dump` makes a backup of it, `pg_restore` brings it back")]
    NoCopy,
    #[error(
        "the store at {location} was written by a newer cowhand (migration {found}; this one knows up to {known}); \
         use that version, or restore a backup from before the upgrade"
    )]
    Newer { location: String, found: i64, known: i64 },
    #[error(
        "the PostgreSQL server of the store, {location}, does not answer ({why}); check that it runs and can be reached from \
         here. Running agents go on, and a daemon goes on by itself as soon as it answers"
    )]
    Away { location: String, why: String },
    #[error(
        "the PostgreSQL server of the store, {location}, has not answered within {seconds} seconds; check that a PostgreSQL \
         server runs there, that `store` in the config names its host and port, and that no firewall or overload keeps it \
         from answering"
    )]
    Silent { location: String, seconds: u64 },
    #[error("the store's connection failed: {0}")]
    Connection(#[source] sqlx::Error),
    #[error("the store refused {statement}: {source}")]
    Statement { statement: &'static str, source: sqlx::Error },
    #[error(
        "the store holds something that cowhand did not write: {what}; `cowhand restore FILE` brings a backup back"
    )]
    Unreadable { what: String },
    #[error("there is no job {0}")]
    NoJob(JobId),
    #[error("there is no schedule with id {0}")]
    NoSchedule(ScheduleId),
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error("no free job id was found in {0} draws")]
    NoFreeId(usize),
    #[error("a verb of the store panicked; nothing of it was written")]
    Panicked,
    #[error("the store is closed")]
    Closed,
    #[error("the commit failed and nothing of it was written: {0}")]
    Commit(String),
}

impl StoreError {
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

/// Returns true if SQLite reports that the file is malformed or not a database.
pub(crate) fn is_damage(error: &(dyn std::error::Error + 'static)) -> bool {
    const SQLITE_CORRUPT: i32 = 11;
    const SQLITE_NOTADB: i32 = 26;
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
        if matches!(code, Some(SQLITE_CORRUPT | SQLITE_NOTADB)) {
            return true;
        }
        next = error.source();
    }
    false
}

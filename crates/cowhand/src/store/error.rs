//! What can go wrong with the store, in words that say what to do.

use cowhand_core::id::{JobId, ScheduleId};
use cowhand_core::job::Refused;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("cannot open the store at {place}: {why}")]
    Open { place: String, why: String },
    #[error(
        "the store at {place} was written by a newer cowhand (migration {found}; this one knows up to {known}); \
         use that version, or restore a backup from before the upgrade"
    )]
    Newer { place: String, found: i64, known: i64 },
    #[error("the store's connection failed: {0}")]
    Connection(#[source] sqlx::Error),
    #[error("the store refused {statement}: {source}")]
    Statement { statement: &'static str, source: sqlx::Error },
    #[error("the store holds something that cowhand did not write: {what}")]
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
    pub(super) fn connection(error: sqlx::Error) -> Self {
        match error {
            sqlx::Error::PoolClosed => Self::Closed,
            error => Self::Connection(error),
        }
    }

    pub(super) fn statement(statement: &'static str, source: sqlx::Error) -> Self {
        match source {
            sqlx::Error::PoolClosed => Self::Closed,
            source => Self::Statement { statement, source },
        }
    }
}

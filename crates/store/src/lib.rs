//! The store: the authoritative state of schedules, firings, jobs, attempts, leases and events.
//!
//! [`Store`] is one concrete type on SQLite or PostgreSQL. Verbs are named after what the program does. "now" is always
//! an argument; durations are measured with the boot clock ([`Store::with_clock`]). There is one file for each table and
//! one SQL text for both databases ([`database::dialect`] has the exceptions). The rows of a table are read and written by
//! functions of its file; verbs that change several tables call those functions, and never the reverse ([`database`] is
//! below them all).
//!
//! Three rules apply everywhere:
//!
//! - **A state change and its event are one transaction.** A verb reads and locks the rows it needs, lets `cowhand-core`
//!   decide, and writes the rows and the events, or does nothing.
//! - **Locks are taken in one order**: agent, the fleet's budget, job, usage, lease, work item, hook, ask, follow-up,
//!   schedule, event counter; of several leases, items or schedules the one with the smallest id first. So no two verbs
//!   can wait for each other on PostgreSQL. On SQLite there is one writer ([`database::writer`]), which commits queued
//!   verbs together.
//! - **A row that cannot be read is an error**, never a default.

mod adoptions;
mod agent_lock;
mod asks;
mod attempts;
pub mod audit;
mod backup;
mod backup_file;
mod budgets;
mod cancellation;
mod cancelled_by;
mod claims;
mod cursors;
mod database;
mod denials;
mod events;
mod failures;
mod firings;
mod followups;
pub mod histogram;
mod hooks;
mod imports;
mod integrity;
mod items;
mod jobs;
mod nodes;
mod outbox;
mod providers;
mod reports;
mod retention;
mod roster;
mod schedules;
mod sessions;
mod sightings;
mod snapshot;
mod tokens;
mod usage;
mod workspaces;

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cowhand_core::moment::Moment;
use sqlx::{PgPool, SqlitePool};

use database::changes::Committed;
use database::db::Tx;
use database::file::StoreFile;
use database::health::StoreHealth;
use database::latency::Latency;
use database::patience::Patience;
use database::writer::Writer;

use cowhand_system::clock::Clock;

pub use asks::{AskAnswered, AskMade};
pub use attempts::{JobHistory, PastAttempt};
pub use backup_file::{BackupFile, KnownRows};
pub use budgets::Hearing;
pub use cancellation::CancelOutcome;
pub use cancelled_by::Cancellation;
pub use claims::{Claim, GivenBack, HeldLease, Settled, Starter};
pub use database::{LAST_WAIT, StoreError, file, is_postgres};
pub use failures::{FailedItem, ItemFailures};
pub use firings::{
    Decision, Fired, JobOfFiring, LedgerRow, MAX_TRIES_BEFORE_OTHERS, NewFiring, Preparation, Prepared,
    TakePreparing,
};
pub use followups::{FollowupAsked, FollowupMade, FollowupsOfJob};
pub use hooks::{HookEnd, TakenHook};
pub use imports::{History, Imported, PastJob, PastSchedule, PastSession};
pub use items::{HeldItem, ItemState, NewItemClaim, OfFiring, Taken, Unless};
pub use jobs::JobFilter;
pub use nodes::{BusyNode, Joined, NodePresence};
pub use reports::{AttemptLocation, ReportMade};
pub use retention::{Ended, Pruned, RemovedJob};
pub use sessions::{RunsAt, StoredSession};
pub use tokens::{NewToken, TokenRecord};
pub use usage::{SpentOnItem, SpentOnJob, UsageSlot};
pub use workspaces::{KnownWorkspace, WorkspaceState};

/// Handle of the store. Clones share the connections.
#[derive(Debug, Clone)]
pub struct Store {
    database: Database,
    committed: Committed,
    latency: Latency,
    standing: Arc<StoreHealth>,
    patience: Arc<Patience>,
    /// Source of the random part of a job id.
    random: fn() -> u64,
    /// Clock whose boot time is written beside wall times. Without one, the wall clock decides about everything.
    clock: Option<Clock>,
}

#[derive(Debug, Clone)]
enum Database {
    Sqlite { readers: SqlitePool, writer: Writer, file: StoreFile },
    Postgres(PgPool),
}

type Answer<'t, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 't>>;

impl Store {
    /// Runs a verb in a transaction and returns when it is durable. On SQLite several verbs may share a commit; each
    /// succeeds or fails alone.
    async fn write<T, F>(&self, verb: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: for<'t> FnOnce(&'t mut Tx<'_>) -> Answer<'t, T> + Send + 'static,
    {
        let begin = Instant::now();
        let answer = match &self.database {
            Database::Sqlite { writer, .. } => writer.write(self.present(), verb).await,
            Database::Postgres(pool) => {
                let answer = self.patience.during(Box::pin(self.write_to_server(pool, verb))).await;
                answer.map_err(|error| self.explained(error))
            }
        };
        self.latency.wrote_since(begin);
        self.standing.wrote(&answer);
        answer
    }

    async fn write_to_server<T, F>(&self, pool: &PgPool, verb: F) -> Result<T, StoreError>
    where
        F: for<'t> FnOnce(&'t mut Tx<'_>) -> Answer<'t, T>,
    {
        let mut transaction = pool.begin().await.map_err(StoreError::connection)?;
        let tx = Tx::postgres(&mut transaction).on_account_of(audit::current());
        let mut tx = tx.called_at(self.present());
        let answer = verb(&mut tx).await?;
        let last_event = tx.write_events().await?;
        transaction.commit().await.map_err(StoreError::connection)?;
        self.committed.reached(last_event);
        Ok(answer)
    }

    /// Runs reads that see one state of the store.
    async fn read<T, F>(&self, verb: F) -> Result<T, StoreError>
    where
        F: for<'t> FnOnce(&'t mut Tx<'_>) -> Answer<'t, T>,
    {
        let begin = Instant::now();
        let answer = match &self.database {
            Database::Sqlite { readers, .. } => {
                let answer = async {
                    let mut transaction = readers.begin().await.map_err(StoreError::connection)?;
                    verb(&mut Tx::sqlite(&mut transaction).called_at(self.present())).await
                };
                answer.await.map_err(|error| self.explained(error))
            }
            Database::Postgres(pool) => {
                let answer = async {
                    let begin = "begin isolation level repeatable read read only";
                    let mut transaction = pool.begin_with(begin).await.map_err(StoreError::connection)?;
                    verb(&mut Tx::postgres(&mut transaction).called_at(self.present())).await
                };
                self.patience.during(Box::pin(answer)).await.map_err(|error| self.explained(error))
            }
        };
        self.latency.read_since(begin);
        self.standing.read(&answer);
        answer
    }

    /// Says that the daemon ends: from now on a server that does not answer is waited for no longer than [`LAST_WAIT`], by all
    /// calls together.
    pub fn hurry(&self) {
        self.patience.end();
    }

    /// Returns for how long the server has answered nothing since [`Self::hurry`].
    pub fn silence(&self) -> Option<Duration> {
        self.patience.silence()
    }

    fn present(&self) -> Option<Moment> {
        self.clock.as_ref().map(Clock::moment)
    }

    /// Prepares every statement of this program and returns their number.
    pub async fn check_statements(&self) -> Result<usize, StoreError> {
        let all: Vec<_> = [
            adoptions::ALL,
            agent_lock::ALL,
            asks::ALL,
            attempts::ALL,
            budgets::ALL,
            cancellation::ALL,
            claims::ALL,
            cursors::ALL,
            database::db::ALL,
            denials::ALL,
            events::ALL,
            failures::ALL,
            firings::ALL,
            followups::ALL,
            database::event_log::ALL,
            database::health::ALL,
            hooks::ALL,
            imports::ALL,
            items::ALL,
            jobs::ALL,
            nodes::ALL,
            outbox::ALL,
            providers::ALL,
            reports::ALL,
            retention::ALL,
            schedules::ALL,
            sessions::ALL,
            sightings::ALL,
            snapshot::ALL,
            tokens::ALL,
            usage::ALL,
            workspaces::ALL,
        ]
        .concat();
        let count = all.len();
        self.read(|tx| {
            Box::pin(async move {
                for statement in all {
                    tx.prepare(statement).await?;
                }
                Ok(())
            })
        })
        .await?;
        Ok(count)
    }

    /// Finishes queued writes and closes the connections.
    pub async fn close(self) {
        match self.database {
            Database::Sqlite { readers, writer, .. } => {
                // The writer is closed last: only it can checkpoint the log into the file.
                readers.close().await;
                writer.close().await;
            }
            Database::Postgres(pool) => pool.close().await,
        }
    }
}

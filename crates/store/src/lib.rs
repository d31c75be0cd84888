//! The store: the authoritative state of schedules, firings, jobs, attempts, leases and events.
//!
//! [`Store`] is one concrete type on SQLite or PostgreSQL. Verbs are named after their purpose, not after tables. `now`
//! is always an argument; durations are measured with the boot clock ([`Store::with_clock`]). Most files belong to one
//! table, and most statements have one SQL text for both databases ([`database::dialect`]). A verb that changes several
//! tables calls functions of the files of these tables; such functions do not call verbs. [`database`] is the layer
//! below the files of the tables.
//!
//! Three rules apply everywhere:
//!
//! - **A state change and its event are one transaction.** A verb reads and locks the rows it needs, lets
//!   `cowhand-core` decide, and writes the rows and the events, or does nothing.
//! - **Locks are taken in one order**: provider, places of the fleet, node, agent, the fleet's budget, job, usage,
//!   lease, work item, hook, ask, follow-up, schedule, conversation, cursor of the incidents, notification, event counter.
//!   Several leases, items or schedules are locked in the order of their ids. So no two verbs can wait for each other on
//!   PostgreSQL. On SQLite there is one writer ([`database::writer`]), which commits queued verbs together.
//! - **A row that cannot be read is an error**, never a default.

mod adoptions;
mod agent_lock;
mod answered_jobs;
mod asks;
mod attempts;
pub mod audit;
mod backup;
mod backup_file;
mod budget_levels;
mod budgets;
mod cancellation;
mod cancelled_by;
mod chat_answers;
mod chat_asks;
mod chat_bots;
mod chat_calls;
mod chat_counts;
mod chat_edits;
mod chat_files;
mod chat_limits;
mod chat_messages;
mod chat_spending;
mod claims;
mod cursors;
mod database;
mod denials;
mod drains;
mod events;
mod expiry;
mod failures;
mod firings;
mod followups;
mod highest_cost;
pub mod histogram;
mod hooks;
mod identity;
mod imports;
mod incidents;
mod integrity;
mod items;
mod job_messages;
mod jobs;
mod leases;
mod node_health;
mod node_reports;
mod nodes;
mod notifications;
mod outbox;
mod providers;
mod reports;
mod retention;
mod roster;
mod schedules;
mod send_web_message;
mod sessions;
mod shared_places;
mod sightings;
mod snapshot;
mod superseded;
mod tokens;
mod usage;
mod web_conversations;
mod web_messages;
mod workspaces;

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cowhand_core::moment::Moment;
use sqlx::PgPool;

use database::changes::Committed;
use database::counts::StatementCounter;
use database::db::Tx;
use database::dialect::Statement;
use database::file::StoreFile;
use database::health::StoreHealth;
use database::latency::Latency;
use database::server::{self, ServerConnection, with_statement_timeout};
use database::shutdown_limit::ShutdownLimit;
use database::sqlite::{Readers, run_now};
use database::writer::{SuccessIf, Writer};

use cowhand_system::clock::Clock;

pub use adoptions::EmptyAdoption;
pub use answered_jobs::{AnsweredJob, OpenAnswer};
pub use asks::{AskAnswered, AskMade};
pub use attempts::{JobHistory, PastAttempt};
pub use backup_file::{BackupFile, KnownRows, RevokedToken};
pub use budgets::UsageRecorded;
pub use cancellation::CancelOutcome;
pub use cancelled_by::Cancellation;
pub use chat_answers::ChatAnswer;
pub use chat_asks::ChatAsk;
pub use chat_bots::{ChatBotRecord, ChatBotState};
pub use chat_counts::{ChatCounts, RefusedAnswers};
pub use chat_edits::ChatEdit;
pub use chat_files::{FileSent, SentFile};
pub use chat_limits::{CountedMessage, LimitReached, MessageLimits};
pub use chat_messages::{ReceivedChatMessage, SeenChatChannel};
pub use claims::{Claim, RequeueOutcome, Settled, Starter};
pub use database::counts::StatementCounts;
pub use database::sqlite::SQLITE_READERS;
pub use database::{DriverError, SHUTDOWN_STORE_TIMEOUT, StoreError, StoreId, file, is_postgres};
pub use drains::{DrainChange, Forgotten};
pub use events::ChangedAgents;
pub use failures::{FailedItemState, ItemFailures};
pub use firings::{Fired, FiringJobRow, LedgerRow, MAX_BLOCKING_TRIES, Preparation, Prepared, TakePreparing};
pub use followups::{FollowupOutcome, FollowupsOfJob, NewFollowup};
pub use hooks::{HookEnd, TakenHook};
pub use imports::{History, Imported, PastJob, PastSchedule, PastSession};
pub use incidents::{FollowReason, Followed};
pub use items::{FiringRef, HeldItem, ItemState, NewItemClaim, TakeConditions, TakeResult};
pub use job_messages::{MessageSent, NewJobMessage};
pub use jobs::JobFilter;
pub use leases::{HeldLease, OverdueLease};
pub use node_health::WatchedNode;
pub use nodes::{NodeJoined, NodePresence};
pub use notifications::{NOTIFICATION_LEASE, NotificationEnd, NotificationFilter, NotificationRecord};
pub use outbox::OUTBOX_LEASE;
pub use reports::{AttemptLocation, ReportOutcome};
pub use retention::{EndedJob, Removal, RemovedJob};
pub use send_web_message::{NewWebMessage, WebMessageSent};
pub use sessions::{ProviderAndRuntime, StoredSession};
pub use shared_places::SharedLimits;
pub use snapshot::WaitingJobs;
pub use tokens::{NewToken, TokenRecord};
pub use usage::{SpentOnItem, SpentOnJob, UsageSlot};
pub use web_conversations::{NewWebConversation, WebConversation, WebMessageJob};
pub use web_messages::WebMessage;
pub use workspaces::{StoredWorkspace, WorkspaceState};

/// Handle of the store. Clones share the connections.
#[derive(Debug, Clone)]
pub struct Store {
    database: Database,
    committed: Committed,
    latency: Latency,
    counter: StatementCounter,
    health: Arc<StoreHealth>,
    shutdown_limit: Arc<ShutdownLimit>,
    /// Source of the random part of a job id.
    random: fn() -> u64,
    /// Clock whose boot time is written beside wall times. Without a clock, the wall clock decides about durations.
    clock: Option<Clock>,
}

#[derive(Debug, Clone)]
enum Database {
    Sqlite { readers: Readers, writer: Writer, file: StoreFile },
    Postgres(PgPool),
}

type VerbFuture<'t, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 't>>;

impl Store {
    /// Runs a verb in a transaction and returns after its commit is on disk. On SQLite several verbs may share a
    /// commit; each verb succeeds or fails alone.
    async fn write<T, F>(&self, verb: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: for<'t> FnOnce(&'t mut Tx<'_>) -> VerbFuture<'t, T> + Send + 'static,
    {
        self.write_if(SuccessIf::FileExists, verb).await
    }

    async fn write_if<T, F>(&self, success_if: SuccessIf, verb: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: for<'t> FnOnce(&'t mut Tx<'_>) -> VerbFuture<'t, T> + Send + 'static,
    {
        let started_at = Instant::now();
        let answer = match &self.database {
            Database::Sqlite { writer, .. } => {
                let answer = writer.write(self.call_time(), success_if, verb).await;
                let answer = answer.map_err(|error| self.with_cause(error));
                // Only writes count, because a file that cannot be written can often be read.
                self.shutdown_limit.record(&answer);
                answer
            }
            Database::Postgres(pool) => {
                let answer = self.shutdown_limit.during(Box::pin(self.write_to_server(pool, verb))).await;
                answer.map_err(|error| self.with_cause(error))
            }
        };
        self.latency.record_write(started_at);
        self.health.record_write(&answer);
        answer
    }

    async fn write_to_server<T, F>(&self, pool: &PgPool, verb: F) -> Result<T, StoreError>
    where
        F: for<'t> FnOnce(&'t mut Tx<'_>) -> VerbFuture<'t, T>,
    {
        let mut server = ServerConnection::acquire(pool).await?;
        let call = async {
            let mut transaction = server.begin(None).await?;
            let tx = Tx::postgres(&mut transaction, &self.counter).with_actor(audit::current());
            let mut tx = tx.with_call_time(self.call_time());
            let answer = verb(&mut tx).await?;
            let last_event = tx.write_events().await?;
            with_statement_timeout(transaction.commit()).await.map_err(StoreError::connection)?;
            self.committed.advance(last_event);
            Ok(answer)
        };
        let answer = call.await;
        server.finish(answer)
    }

    async fn read_from_server<T, F>(&self, pool: &PgPool, verb: F) -> Result<T, StoreError>
    where
        F: for<'t> FnOnce(&'t mut Tx<'_>) -> VerbFuture<'t, T>,
    {
        let mut server = ServerConnection::acquire(pool).await?;
        let call = async {
            let begin_snapshot = "begin isolation level repeatable read read only";
            let mut transaction = server.begin(Some(begin_snapshot)).await?;
            verb(&mut Tx::postgres(&mut transaction, &self.counter).with_call_time(self.call_time())).await
        };
        let answer = call.await;
        server.finish(answer)
    }

    /// Runs reads that see one state of the store.
    async fn read<T, F>(&self, verb: F) -> Result<T, StoreError>
    where
        F: for<'t> FnOnce(&'t mut Tx<'_>) -> VerbFuture<'t, T>,
    {
        let started_at = Instant::now();
        let answer = match &self.database {
            Database::Sqlite { readers, .. } => {
                let call_time = self.call_time();
                let answer = readers.run_in_transaction(|connection| {
                    run_now(verb(&mut Tx::sqlite(connection, &self.counter).with_call_time(call_time)))
                });
                answer.await.map_err(|error| self.with_cause(error))
            }
            Database::Postgres(pool) => {
                let answer = self.shutdown_limit.during(Box::pin(self.read_from_server(pool, verb))).await;
                answer.map_err(|error| self.with_cause(error))
            }
        };
        self.latency.record_read(started_at);
        self.health.record_read(&answer);
        answer
    }

    /// Limits all waits; an ending daemon calls this method. From now on, all calls together wait at most
    /// [`SHUTDOWN_STORE_TIMEOUT`] for a server that does not answer. Each answer restarts this time.
    /// [`Self::unanswered_time`] returns the time without an answer, or without a successful write to the file.
    pub fn limit_waits(&self) {
        self.shutdown_limit.begin();
    }

    /// Returns for how long the server has not answered, or the file could not be written, since
    /// [`Self::limit_waits`]. Returns `None` if no call has waited or failed since the last answer.
    pub fn unanswered_time(&self) -> Option<Duration> {
        self.shutdown_limit.unanswered_time()
    }

    /// Returns whether [`Self::limit_waits`] was called.
    pub fn limits_waits(&self) -> bool {
        self.shutdown_limit.has_begun()
    }

    fn call_time(&self) -> Option<Moment> {
        self.clock.as_ref().map(Clock::moment)
    }

    /// Prepares every statement that `statements!` declares, and returns the number of these statements.
    pub async fn check_statements(&self) -> Result<usize, StoreError> {
        let all = all_statements();
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

    /// Returns the name and the SQL of every statement that `statements!` declares, for the database of this store.
    pub fn statements(&self) -> Vec<(&'static str, &'static str)> {
        let sql = |statement: Statement| match self.database {
            Database::Sqlite { .. } => (statement.name, statement.sqlite),
            Database::Postgres(_) => (statement.name, statement.postgres),
        };
        all_statements().into_iter().map(sql).collect()
    }

    /// Finishes queued writes and closes the connections.
    pub async fn close(self) {
        match self.database {
            Database::Sqlite { readers, writer, .. } => {
                // The writer is closed last, because only the writer can copy SQLite's write-ahead log into the file.
                readers.close().await;
                writer.close().await;
            }
            Database::Postgres(pool) => server::close(&pool).await,
        }
    }
}

fn all_statements() -> Vec<Statement> {
    [
        adoptions::ALL,
        agent_lock::ALL,
        asks::ALL,
        attempts::ALL,
        answered_jobs::ALL,
        budget_levels::ALL,
        budgets::ALL,
        cancellation::ALL,
        chat_answers::ALL,
        chat_asks::ALL,
        chat_calls::ALL,
        chat_bots::ALL,
        chat_counts::ALL,
        chat_edits::ALL,
        chat_files::ALL,
        chat_limits::ALL,
        chat_messages::ALL,
        chat_spending::ALL,
        claims::ALL,
        claims::admission::ALL,
        cursors::ALL,
        database::db::ALL,
        denials::ALL,
        drains::ALL,
        events::ALL,
        expiry::ALL,
        failures::ALL,
        firings::ALL,
        followups::ALL,
        database::event_log::ALL,
        database::health::ALL,
        highest_cost::ALL,
        hooks::ALL,
        identity::ALL,
        imports::ALL,
        incidents::ALL,
        items::ALL,
        job_messages::ALL,
        jobs::ALL,
        leases::ALL,
        node_health::ALL,
        node_reports::ALL,
        nodes::ALL,
        notifications::ALL,
        outbox::ALL,
        providers::ALL,
        reports::ALL,
        retention::ALL,
        schedules::ALL,
        sessions::ALL,
        shared_places::ALL,
        sightings::ALL,
        snapshot::ALL,
        superseded::ALL,
        tokens::ALL,
        usage::ALL,
        web_conversations::ALL,
        web_messages::ALL,
        workspaces::ALL,
    ]
    .concat()
}

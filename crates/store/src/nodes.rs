//! Nodes: the machines whose daemons use this store, the times at which these daemons started, and the nodes that run
//! jobs now.

use std::sync::Arc;

use cowhand_core::event::Fact;
use cowhand_core::moment::{MIN_CLOCK_STEP, Moment};
use jiff::{SignedDuration, Timestamp};
use sqlx::postgres::PgConnection;
use sqlx::{ConnectOptions, Connection};

use super::database::ANSWER_TIMEOUT;
use super::database::counts::StatementCounter;
use super::database::db::{Row, Tx, args};
use super::database::dialect::statements;
use super::database::event_log::NewEvent;
use super::database::shutdown_limit::ShutdownLimit;
use super::{Database, Store, StoreError, hooks, notifications, outbox};

statements! {
    LOCK_NODE = locked "select * from nodes where name = $1";
    JOIN = same "insert into nodes (name, started_at, started_boot, seen_at, seen_boot) values ($1, $2, $3, $2, $3) \
        on conflict (name) do update set started_at = excluded.started_at, started_boot = excluded.started_boot, \
        seen_at = excluded.seen_at, seen_boot = excluded.seen_boot, stopped_at = null";
    SEE_CLOCK = same "update nodes set seen_at = $2, seen_boot = $3 where name = $1";
    // A daemon holds this lock as long as its connection is open, so no row has to be renewed.
    HOLD_PRESENCE = sqlite "select $1 as node, 1 as held"
        postgres "select $1::text as node, pg_try_advisory_lock(hashtextextended('node ' || $1, 0))::int::bigint as held";
    IS_RUNNING = sqlite "select name from nodes where name = $1 and false"
        postgres "select $1::text as name where exists (select 1 from pg_locks where locktype = 'advisory' \
            and granted and objsubid = 1 and database = (select oid from pg_database where datname = current_database()) \
            and ((classid::bigint << 32) | objid::bigint) = hashtextextended('node ' || $1, 0))";
    // Only one daemon uses a SQLite store.
    OTHERS = sqlite "select * from nodes where name <> $1 and false"
        postgres "select * from nodes where name <> $1 and exists (select 1 from pg_locks where locktype = 'advisory' \
            and granted and objsubid = 1 and database = (select oid from pg_database where datname = current_database()) \
            and ((classid::bigint << 32) | objid::bigint) = hashtextextended('node ' || name, 0))";
}

/// Result of the start of a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeJoined {
    /// Amount by which the wall clock was set while no daemon of the node ran. `None` if the amount is less than
    /// [`MIN_CLOCK_STEP`], or unknown: at the first start, after a boot, or without a boot clock.
    pub step: Option<SignedDuration>,
    /// Start of the oldest other running daemon; `None` if no other daemon runs.
    pub others_since: Option<Moment>,
}

/// The presence of a node: other nodes see that the node's daemon runs, until this value is dropped or `connection`
/// breaks. On SQLite there are no other nodes, and no connection.
#[derive(Debug)]
pub struct NodePresence {
    connection: Option<PgConnection>,
    node: String,
    /// False if another connection announces the same node: a second daemon, or an earlier connection of this daemon
    /// whose end the server has not noticed yet.
    is_held: bool,
    shutdown_limit: Arc<ShutdownLimit>,
}

impl NodePresence {
    /// Checks whether the connection works, and announces the node if it is not announced yet. Always returns true on
    /// SQLite.
    pub async fn is_connected(&mut self) -> bool {
        let Some(connection) = &mut self.connection else { return true };
        let (node, is_held) = (self.node.as_str(), self.is_held);
        let check = async {
            if is_held {
                connection.ping().await.map_err(StoreError::connection)?;
                return Ok(true);
            }
            hold(connection, node).await
        };
        let checked = self.shutdown_limit.during(Box::pin(with_timeout(check))).await;
        self.is_held = checked.as_ref().is_ok_and(|is_held| *is_held);
        checked.is_ok()
    }

    /// Returns false if another connection announces the same node. [`Self::is_connected`] tries again.
    pub const fn is_held(&self) -> bool {
        self.is_held
    }
}

impl Store {
    /// Records the start of a daemon. Also records, and returns, the amount by which the wall clock was set while no
    /// daemon of the node ran.
    pub async fn join(&self, node: String, now: Timestamp) -> Result<NodeJoined, StoreError> {
        let others_since = self.others_since(node.clone()).await?;
        self.write(move |tx| {
            Box::pin(async move {
                let (moment, row) = (tx.moment(now), tx.one(LOCK_NODE, args![node.as_str()]).await?);
                let seen = row.map(|row| row.moment_opt("seen_at", "seen_boot")).transpose()?.flatten();
                tx.execute(JOIN, args![node.as_str(), now, moment.boot]).await?;
                let step =
                    seen.and_then(|seen| moment.step_since(seen)).filter(|step| step.abs() >= MIN_CLOCK_STEP);
                if let Some(step) = step {
                    record_step(tx, node, step, now).await?;
                }
                Ok(NodeJoined { step, others_since })
            })
        })
        .await
    }

    /// Records a step of the node's wall clock. If the clock was set back, some times of the node's work items and hook
    /// runs are now too far in the future. These times are moved to earlier times.
    pub async fn clock_stepped(
        &self,
        node: String,
        step: SignedDuration,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                tx.execute(SEE_CLOCK, args![node.as_str(), now, tx.moment(now).boot]).await?;
                record_step(tx, node, step, now).await
            })
        })
        .await
    }

    /// Returns the start of the oldest running daemon of another node; `None` if no other daemon runs.
    pub async fn others_since(&self, node: String) -> Result<Option<Moment>, StoreError> {
        let rows = self.read(move |tx| Box::pin(async move { tx.all(OTHERS, args![node]).await })).await?;
        let started = |row: &Row| row.moment_opt("started_at", "started_boot");
        let started = rows.iter().map(started).collect::<Result<Vec<_>, _>>()?;
        Ok(started.into_iter().flatten().min_by_key(|started| started.wall))
    }

    /// Announces to the other nodes that the daemon of this node runs.
    pub async fn announce_node(&self, node: &str) -> Result<NodePresence, StoreError> {
        let shutdown_limit = Arc::clone(&self.shutdown_limit);
        let Database::Postgres(pool) = &self.database else {
            let (connection, node, is_held) = (None, node.to_owned(), true);
            return Ok(NodePresence { connection, node, is_held, shutdown_limit });
        };
        let connect = async {
            let mut connection = pool.connect_options().connect().await.map_err(StoreError::connection)?;
            let is_held = hold(&mut connection, node).await?;
            Ok((connection, is_held))
        };
        let connected = self.shutdown_limit.during(Box::pin(with_timeout(connect))).await;
        let (connection, is_held) = connected.map_err(|error| self.with_cause(error))?;
        Ok(NodePresence { connection: Some(connection), node: node.to_owned(), is_held, shutdown_limit })
    }

    /// Returns whether the daemon of another node runs. On SQLite, no other daemon runs.
    pub async fn is_node_running(&self, node: String) -> Result<bool, StoreError> {
        self.read(move |tx| Box::pin(async move { is_running(tx, &node).await })).await
    }
}

/// Returns whether the daemon of the node runs. Always false on SQLite, where the caller knows it.
pub(super) async fn is_running(tx: &mut Tx<'_>, node: &str) -> Result<bool, StoreError> {
    Ok(tx.one(IS_RUNNING, args![node]).await?.is_some())
}

/// Announces the node on this connection. Returns false if another connection announces the same node.
async fn hold(connection: &mut PgConnection, node: &str) -> Result<bool, StoreError> {
    let row = Tx::postgres(connection, &StatementCounter::default()).one(HOLD_PRESENCE, args![node]).await?;
    Ok(row.map(|row| row.get::<i64>("held")).transpose()? == Some(1))
}

/// Runs a call with a timeout. A connection outside the pool has no time limit of its own.
async fn with_timeout<T>(call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    let answer = tokio::time::timeout(ANSWER_TIMEOUT, call).await;
    answer.unwrap_or(Err(StoreError::Connection(sqlx::Error::PoolTimedOut.into())))
}

async fn record_step(
    tx: &mut Tx<'_>,
    node: String,
    step: SignedDuration,
    now: Timestamp,
) -> Result<(), StoreError> {
    if step.is_negative() {
        outbox::clock_set_back(tx, &node, now).await?;
        hooks::clock_set_back(tx, &node, now).await?;
        notifications::clock_set_back(tx, now).await?;
    }
    let seconds = step.round(jiff::Unit::Second).map_or(step.as_secs(), |step| step.as_secs());
    tx.record(NewEvent::of_fleet(Fact::ClockStepped { node, seconds }, now));
    Ok(())
}

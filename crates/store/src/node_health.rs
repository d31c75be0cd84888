//! The health of nodes: nodes whose daemon ended without being stopped, and nodes whose disk has little free space.

use cowhand_core::event::Fact;
use jiff::Timestamp;

use super::database::db::{Row, Tx, args};
use super::database::dialect::statements;
use super::database::event_log::NewEvent;
use super::{Store, StoreError};

statements! {
    STOP_NODE = same "update nodes set stopped_at = $2 where name = $1";
    NODE_HEALTH = same "select * from nodes where name = $1";
    LOCK_HEALTH = locked "select * from nodes where name = $1";
    LOSE_NODE = same "update nodes set lost_at = $2 where name = $1";
    SET_DISK_LOW = same "update nodes set disk_low_at = $2 where name = $1";
    // Only one daemon uses a SQLite store, so no other node can be lost there.
    WATCHED_NODES = sqlite "select name, lost_at, 1 as runs from nodes where name = $1 and lost_at is not null"
        postgres "select name, lost_at, (case when name = $1 or exists (select 1 from pg_locks where locktype = 'advisory' \
            and granted and objsubid = 1 and database = (select oid from pg_database where datname = current_database()) \
            and ((classid::bigint << 32) | objid::bigint) = hashtextextended('node ' || name, 0)) then 1 else 0 end)::bigint as runs \
            from nodes where stopped_at is null or lost_at is not null";
}

/// A node that was not stopped, or that counts as lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchedNode {
    pub name: String,
    /// True if its daemon runs and is connected to the database.
    pub is_running: bool,
    pub is_lost: bool,
}

impl Store {
    /// Records that the daemon of a node was stopped, so that the node does not count as lost.
    pub async fn node_stopped(&self, node: String, now: Timestamp) -> Result<(), StoreError> {
        self.write(move |tx| Box::pin(async move { tx.execute(STOP_NODE, args![node, now]).await.map(drop) }))
            .await
    }

    /// Returns the nodes that were not stopped, or that count as lost. `node` is the node of the caller, which runs.
    pub async fn watched_nodes(&self, node: String) -> Result<Vec<WatchedNode>, StoreError> {
        let rows = self.read(move |tx| Box::pin(async move { tx.all(WATCHED_NODES, args![node]).await }));
        let read = |row: &Row| {
            let is_running = row.get::<i64>("runs")? != 0;
            Ok(WatchedNode {
                name: row.get("name")?,
                is_running,
                is_lost: row.time_opt("lost_at")?.is_some(),
            })
        };
        rows.await?.iter().map(read).collect()
    }

    /// Records that a node is lost, or that it has returned. Only the first call after a change records an event.
    pub async fn record_node_lost(
        &self,
        node: String,
        is_lost: bool,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.write(move |tx| Box::pin(async move { record_lost(tx, node, is_lost, now).await })).await
    }

    /// Records the free space of the disk of a node's state folder, and an event if it falls below the limit or rises
    /// to the limit again.
    pub async fn record_free_space(
        &self,
        node: String,
        free: u64,
        limit: u64,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let is_low = free < limit;
        let name = node.clone();
        let row = self.read(move |tx| Box::pin(async move { tx.one(NODE_HEALTH, args![name]).await }));
        let was_low = row.await?.map(|row| row.time_opt("disk_low_at")).transpose()?.flatten().is_some();
        if is_low == was_low {
            return Ok(());
        }
        self.write(move |tx| {
            Box::pin(async move {
                let Some(row) = tx.one(LOCK_HEALTH, args![node.as_str()]).await? else { return Ok(()) };
                if row.time_opt("disk_low_at")?.is_some() == is_low {
                    return Ok(());
                }
                tx.execute(SET_DISK_LOW, args![node.as_str(), is_low.then_some(now)]).await?;
                let fact = if is_low {
                    Fact::DiskLow { node, free, limit }
                } else {
                    Fact::DiskFreed { node, free, limit }
                };
                tx.record(NewEvent::of_fleet(fact, now));
                Ok(())
            })
        })
        .await
    }
}

async fn record_lost(tx: &mut Tx<'_>, node: String, is_lost: bool, now: Timestamp) -> Result<(), StoreError> {
    let Some(row) = tx.one(LOCK_HEALTH, args![node.as_str()]).await? else { return Ok(()) };
    let is_stopped = row.time_opt("stopped_at")?.is_some();
    if row.time_opt("lost_at")?.is_some() == is_lost || (is_lost && is_stopped) {
        return Ok(());
    }
    tx.execute(LOSE_NODE, args![node.as_str(), is_lost.then_some(now)]).await?;
    let fact = if is_lost { Fact::NodeLost { node } } else { Fact::NodeReturned { node } };
    tx.record(NewEvent::of_fleet(fact, now));
    Ok(())
}

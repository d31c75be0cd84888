//! Drained nodes, which take no new jobs, and forgotten nodes.

use cowhand_core::event::Fact;
use jiff::Timestamp;

use super::database::db::{Tx, args};
use super::database::dialect::statements;
use super::database::event_log::NewEvent;
use super::{Store, StoreError, nodes};

statements! {
    LOCK_DRAIN = locked "select drained_at from nodes where name = $1";
    // A drain waits until the claims of the node that read this row have ended, so no job starts after it.
    READ_DRAIN = sqlite "select drained_at from nodes where name = $1"
        postgres "select drained_at from nodes where name = $1 for share";
    SET_DRAIN = same "update nodes set drained_at = $2 where name = $1";
    RUNNING_OF_NODE = same "select count(*) as running from leases where node = $1";
    FORGET_REPORT = same "delete from node_reports where name = $1";
    FORGET_NODE = same "delete from nodes where name = $1";
}

/// Result of draining or undraining a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrainChange {
    Changed,
    /// The node was in this state already.
    Unchanged,
    NoNode,
}

/// Result of forgetting a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forgotten {
    Done,
    NoNode,
    /// Its daemon runs; nothing was written.
    StillRuns,
    /// It has leases of this number of jobs; nothing was written.
    HasLeases(u32),
}

impl Store {
    /// Lets a node take no new jobs, from the return of this call on. Its running jobs continue.
    pub async fn drain(&self, node: String, now: Timestamp) -> Result<DrainChange, StoreError> {
        self.set_drain(node, true, now).await
    }

    /// Lets a drained node take jobs again.
    pub async fn undrain(&self, node: String, now: Timestamp) -> Result<DrainChange, StoreError> {
        self.set_drain(node, false, now).await
    }

    async fn set_drain(
        &self,
        node: String,
        drained: bool,
        now: Timestamp,
    ) -> Result<DrainChange, StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                let Some(row) = tx.one(LOCK_DRAIN, args![node.as_str()]).await? else {
                    return Ok(DrainChange::NoNode);
                };
                if row.time_opt("drained_at")?.is_some() == drained {
                    return Ok(DrainChange::Unchanged);
                }
                let since = if drained { Some(tx.lease_clock(now).await?.wall) } else { None };
                tx.execute(SET_DRAIN, args![node.as_str(), since]).await?;
                let fact = if drained { Fact::NodeDrained { node } } else { Fact::NodeUndrained { node } };
                tx.record(NewEvent::of_fleet(fact, now));
                Ok(DrainChange::Changed)
            })
        })
        .await
    }

    /// Removes a node that no longer runs from the list of nodes.
    pub async fn forget_node(&self, node: String, now: Timestamp) -> Result<Forgotten, StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                if tx.one(LOCK_DRAIN, args![node.as_str()]).await?.is_none() {
                    return Ok(Forgotten::NoNode);
                }
                if nodes::is_running(tx, &node).await? {
                    return Ok(Forgotten::StillRuns);
                }
                let running = count_running(tx, &node).await?;
                if running > 0 {
                    return Ok(Forgotten::HasLeases(running));
                }
                tx.execute(FORGET_REPORT, args![node.as_str()]).await?;
                tx.execute(FORGET_NODE, args![node.as_str()]).await?;
                tx.record(NewEvent::of_fleet(Fact::NodeForgotten { node }, now));
                Ok(Forgotten::Done)
            })
        })
        .await
    }
}

/// Checks whether the node takes no new jobs. Claims of nodes with a limit wait for each other here.
pub(super) async fn is_drained(tx: &mut Tx<'_>, node: &str, has_capacity: bool) -> Result<bool, StoreError> {
    let statement = if has_capacity { LOCK_DRAIN } else { READ_DRAIN };
    let row = tx.one(statement, args![node]).await?;
    Ok(row.map(|row| row.time_opt("drained_at")).transpose()?.flatten().is_some())
}

/// Counts the jobs of a node.
pub(super) async fn count_running(tx: &mut Tx<'_>, node: &str) -> Result<u32, StoreError> {
    tx.one(RUNNING_OF_NODE, args![node]).await?.map_or(Ok(0), |row| row.count("running"))
}

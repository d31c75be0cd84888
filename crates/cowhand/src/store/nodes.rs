//! Nodes: who runs jobs of this store now.

use jiff::Timestamp;

use super::db::args;
use super::dialect::statements;
use super::{Store, StoreError};

statements! {
    BUSY_NODES = same "select node, count(*) as running, min(expires_at) as expires_at from leases \
        group by node order by node";
}

/// A node that has something to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BusyNode {
    pub name: String,
    pub running: u64,
    /// Of its leases, the end of the first one that ends.
    pub lease_until: Timestamp,
}

impl Store {
    pub async fn busy_nodes(&self) -> Result<Vec<BusyNode>, StoreError> {
        let rows = self.read(|tx| Box::pin(async move { tx.all(BUSY_NODES, args![]).await })).await?;
        let read = |row: &super::db::Row| {
            Ok(BusyNode {
                name: row.get("node")?,
                running: row.count("running")?,
                lease_until: row.time("expires_at")?,
            })
        };
        rows.iter().map(read).collect()
    }
}

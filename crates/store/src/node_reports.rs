//! What the nodes report about themselves, and the list of all nodes.

use std::collections::HashMap;

use cowhand_core::node::{FleetNode, NodeLimits, NodeReport};
use jiff::Timestamp;

use super::database::db::{Row, Tx, args, json_list};
use super::database::dialect::statements;
use super::{Database, Store, StoreError, jobs};

/// Query for nodes. `$running` is 1 if the daemon of a node runs, else 0.
macro_rules! all_nodes {
    ($running:literal) => {
        concat!(
            "select nodes.name, nodes.started_at, nodes.drained_at, node_reports.report, \
            coalesce(node_reports.seen_at, nodes.seen_at) as seen_at, \
            (select count(*) from leases where node = nodes.name) as running, \
            (select min(expires_at) from leases where node = nodes.name) as lease_until, \
            ",
            $running,
            " as is_running \
            from nodes left join node_reports on node_reports.name = nodes.name order by nodes.name"
        )
    };
}

statements! {
    // Only one daemon uses a SQLite store: the daemon that started last.
    ALL_NODES =
        sqlite (all_nodes!("nodes.started_at = (select max(started_at) from nodes)"))
        postgres (all_nodes!("(exists (select 1 from pg_locks where locktype = 'advisory' and granted and objsubid = 1 \
            and database = (select oid from pg_database where datname = current_database()) \
            and ((classid::bigint << 32) | objid::bigint) = hashtextextended('node ' || nodes.name, 0)))::int::bigint"));
    REPORT = same "insert into node_reports (name, seen_at, report, limits) values ($1, $2, $3, $4) \
        on conflict (name) do update set seen_at = excluded.seen_at, report = excluded.report, limits = excluded.limits";
    SEE_NODE = same "update node_reports set seen_at = $2 where name = $1";
    LIMITS_OF_NODES =
        sqlite "select limits from node_reports where name in (select value from json_each($1)) order by name"
        postgres "select limits from node_reports where name = any (array(select json_array_elements_text(($1::text)::json))) order by name";
    RUNNING_OF_NODES = same "select node, count(*) as running from leases group by node";
}

impl Store {
    /// Returns all nodes that use the store or have used it, except forgotten nodes. On SQLite the last started node
    /// counts as running; the caller knows whether its daemon runs.
    pub async fn nodes(&self) -> Result<Vec<FleetNode>, StoreError> {
        self.read(|tx| Box::pin(all(tx))).await
    }

    /// Records what a node reports about itself.
    pub async fn report_node(
        &self,
        node: String,
        report: NodeReport,
        limits: NodeLimits,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                let (report, limits) = (jobs::to_json(&report)?, jobs::to_json(&limits)?);
                let seen = tx.lease_clock(now).await?.wall;
                tx.execute(REPORT, args![node, seen, report, limits]).await.map(drop)
            })
        })
        .await
    }

    /// Records that the daemon of a node runs now, without an event.
    pub async fn node_seen(&self, node: String, now: Timestamp) -> Result<(), StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                let seen = tx.lease_clock(now).await?.wall;
                tx.execute(SEE_NODE, args![node, seen]).await.map(drop)
            })
        })
        .await
    }

    /// Returns the limits in the configs of these nodes.
    pub async fn limits_of_nodes(&self, nodes: &[String]) -> Result<Vec<NodeLimits>, StoreError> {
        let names = json_list(nodes)?;
        let rows = self.read(move |tx| Box::pin(async move { tx.all(LIMITS_OF_NODES, args![names]).await }));
        rows.await?.iter().map(|row| Ok(row.json_opt("limits")?.unwrap_or_default())).collect()
    }

    /// Counts the running jobs of each node that runs jobs.
    pub async fn running_of_nodes(&self) -> Result<HashMap<String, u32>, StoreError> {
        let rows = self.read(|tx| Box::pin(async move { tx.all(RUNNING_OF_NODES, args![]).await })).await?;
        rows.iter().map(|row| Ok((row.get("node")?, row.count("running")?))).collect()
    }

    /// Returns whether other nodes can use the store.
    pub const fn is_shared(&self) -> bool {
        matches!(self.database, Database::Postgres(_))
    }
}

pub(super) async fn all(tx: &mut Tx<'_>) -> Result<Vec<FleetNode>, StoreError> {
    let shares_store = tx.is_postgres();
    tx.all(ALL_NODES, args![]).await?.iter().map(|row| read(row, shares_store)).collect()
}

fn read(row: &Row, shares_store: bool) -> Result<FleetNode, StoreError> {
    Ok(FleetNode {
        name: row.get("name")?,
        started_at: row.time("started_at")?,
        seen_at: row.time("seen_at")?,
        is_running: row.get::<i64>("is_running")? == 1,
        drained_at: row.time_opt("drained_at")?,
        running: row.count("running")?,
        lease_until: row.time_opt("lease_until")?,
        shares_store,
        report: row.json_opt("report")?.unwrap_or_default(),
    })
}

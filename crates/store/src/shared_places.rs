//! The places that agents share: those of the whole fleet, and those of a node. A claim counts the running jobs of all
//! nodes while it holds a lock, so the limits also hold if several nodes claim jobs at the same time.

use cowhand_core::plan::{PlaceCount, SharedPlaces};

use super::database::db::{Tx, args};
use super::database::dialect::statements;
use super::{Store, StoreError, drains};

statements! {
    LOCK_FLEET_PLACES = sqlite "select 1 as locked"
        postgres "select 1::bigint as locked, pg_advisory_xact_lock(hashtextextended('places of the fleet', 0))";
    RUNNING_OF_FLEET = same "select count(*) as running from leases";
}

/// The limits of the places that agents share; `None` means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SharedLimits {
    /// Limit of the whole fleet.
    pub fleet: Option<u32>,
    /// Limit of the node that claims.
    pub node: Option<u32>,
}

/// Answer to the question whether a node may claim a job.
pub(super) enum NodeAdmission {
    Drained,
    Places(SharedPlaces),
}

impl Store {
    /// Counts the shared places that have a limit, for a plan. A claim counts them again.
    pub async fn shared_places(&self, node: &str, limits: SharedLimits) -> Result<SharedPlaces, StoreError> {
        if limits == SharedLimits::default() {
            return Ok(SharedPlaces::default());
        }
        let node = node.to_owned();
        self.read(move |tx| Box::pin(async move { count(tx, &node, limits).await })).await
    }
}

/// Locks and counts the shared places that have a limit. Call this function after the lock of the provider, and before
/// the lock of the agent.
pub(super) async fn admission(
    tx: &mut Tx<'_>,
    node: &str,
    limits: SharedLimits,
) -> Result<NodeAdmission, StoreError> {
    if limits.fleet.is_some() {
        tx.one(LOCK_FLEET_PLACES, args![]).await?;
    }
    if drains::is_drained(tx, node, limits.node.is_some()).await? {
        return Ok(NodeAdmission::Drained);
    }
    Ok(NodeAdmission::Places(count(tx, node, limits).await?))
}

async fn count(tx: &mut Tx<'_>, node: &str, limits: SharedLimits) -> Result<SharedPlaces, StoreError> {
    let fleet = match limits.fleet {
        Some(max) => {
            let row = tx.one(RUNNING_OF_FLEET, args![]).await?;
            Some(PlaceCount { max, taken: row.map_or(Ok(0), |row| row.count("running"))? })
        }
        None => None,
    };
    let node = match limits.node {
        Some(max) => Some(PlaceCount { max, taken: drains::count_running(tx, node).await? }),
        None => None,
    };
    Ok(SharedPlaces { fleet, node })
}

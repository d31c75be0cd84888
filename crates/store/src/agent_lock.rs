//! The lock of an agent, for what is decided by all of its jobs: whether it has a free place, and which hooks it has.

use cowhand_core::id::AgentName;

use super::StoreError;
use super::database::db::{Tx, args};
use super::database::dialect::statements;

statements! {
    LOCK_AGENT = sqlite "select $1 as agent" postgres "select $1::text as agent, pg_advisory_xact_lock(hashtextextended($1, 0))";
}

/// One verb at a time for what concerns the whole agent.
pub(super) async fn lock_agent(tx: &mut Tx<'_>, agent: &AgentName) -> Result<(), StoreError> {
    tx.one(LOCK_AGENT, args![agent.as_str()]).await.map(drop)
}

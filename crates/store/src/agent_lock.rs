//! The lock of an agent, for decisions that depend on all of its jobs: free places and hooks.

use cowhand_core::id::AgentName;

use super::StoreError;
use super::database::db::{Tx, args};
use super::database::dialect::statements;

statements! {
    LOCK_AGENT = sqlite "select $1 as agent" postgres "select $1::text as agent, pg_advisory_xact_lock(hashtextextended($1, 0))";
}

/// Locks an agent until the end of the transaction. On SQLite this does nothing, because there is only one writer.
pub(super) async fn lock_agent(tx: &mut Tx<'_>, agent: &AgentName) -> Result<(), StoreError> {
    tx.one(LOCK_AGENT, args![agent.as_str()]).await.map(drop)
}

//! The highest cost among the last attempts of an agent, which is what the next attempt is expected to cost.

use cowhand_core::budget::HighestCost;
use cowhand_core::id::AgentName;

use super::StoreError;
use super::database::db::{Tx, args};
use super::database::dialect::statements;

statements! {
    HIGHEST_COST_OF_AGENT = same "select max(microdollars) as microdollars, max(tokens) as tokens from (select attempts.microdollars, \
        attempts.tokens from attempts join jobs on jobs.id = attempts.job_id where jobs.agent = $1 \
        and attempts.ended_at is not null and attempts.tokens is not null order by jobs.number desc limit 20) as latest";
}

pub(super) async fn highest_cost(tx: &mut Tx<'_>, agent: &AgentName) -> Result<HighestCost, StoreError> {
    let Some(row) = tx.one(HIGHEST_COST_OF_AGENT, args![agent.as_str()]).await? else {
        return Ok(HighestCost::default());
    };
    let highest = |column| {
        Ok::<_, StoreError>(row.get::<Option<i64>>(column)?.map(|value| value.max(0).cast_unsigned()))
    };
    Ok(HighestCost { microdollars: highest("microdollars")?, tokens: highest("tokens")? })
}

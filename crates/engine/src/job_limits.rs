//! The budgets that apply to a job.

use cowhand_core::budget::SpendLimits;
use cowhand_core::id::JobId;
use cowhand_core::roster::{Agent, Roster};
use jiff::Timestamp;

use cowhand_store::{Store, StoreError};

/// Returns the budgets that apply to a job now, with the budget of the person whose message caused it. None if nothing is
/// limited.
pub(crate) async fn limits_of_job(
    store: &Store,
    roster: &Roster,
    agent: &Agent,
    job: &JobId,
    now: Timestamp,
) -> Result<Option<SpendLimits>, StoreError> {
    let answer = if agent.has_person_budget() { store.chat_answer_of_job(job.clone()).await? } else { None };
    let sender =
        answer.as_ref().map(|answer| (answer.origin.platform, answer.origin.requester().id.as_str()));
    Ok(SpendLimits::of_message(roster, agent, sender, now))
}

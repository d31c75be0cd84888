//! The limits of a person: how many messages an agent accepts, and how much their jobs may cost. A limit is checked in the
//! transaction that counts the message, so that messages that arrive at the same time cannot all pass.

use cowhand_core::budget::{OverBudget, SpendLimits};
use cowhand_core::id::AgentName;
use jiff::Timestamp;

use super::agent_lock::lock_agent;
use super::database::db::{Tx, args};
use super::database::dialect::statements;
use super::{Store, StoreError, chat_spending};

statements! {
    COUNT_CHAT_ANSWERS = same "select count(*) as messages, min(created_at) as first_at from chat_answers \
        where author = $1 and agent = $2 and created_at >= $3";
    COUNT_COUNTED_MESSAGES = same "select count(*) as messages, min(counted_at) as first_at from chat_counted \
        where author = $1 and agent = $2 and counted_at >= $3 and not exists (select 1 from chat_answers \
        where chat_answers.message = chat_counted.message and chat_answers.agent = chat_counted.agent)";
    ADD_COUNTED_MESSAGE = same "insert into chat_counted (message, agent, author, counted_at) values ($1, $2, $3, $4) \
        on conflict (message, agent) do nothing";
    COUNTED_MESSAGE = same "select counted_at from chat_counted where message = $1 and agent = $2";
    FORGET_COUNTED_MESSAGES = same "delete from chat_counted where counted_at < $1";
}

/// Limits that apply to one more message of a person.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MessageLimits {
    /// Largest number of messages since a time.
    pub rate: Option<(u32, Timestamp)>,
    /// Limits with the daily budget of the person.
    pub budget: Option<SpendLimits>,
}

/// Limit that a person has reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitReached {
    /// `first_at` is the time of the oldest message that counts.
    Rate {
        first_at: Timestamp,
    },
    Budget(OverBudget),
}

/// A message whose handling costs something before it has an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedMessage {
    pub message: String,
    pub agent: AgentName,
    pub author: String,
}

impl MessageLimits {
    pub const fn is_unlimited(&self) -> bool {
        self.rate.is_none() && self.budget.is_none()
    }
}

impl Store {
    /// Returns the limit that a person has reached, without counting a message.
    pub async fn chat_limit_reached(
        &self,
        agent: AgentName,
        author: String,
        limits: MessageLimits,
    ) -> Result<Option<LimitReached>, StoreError> {
        if limits.is_unlimited() {
            return Ok(None);
        }
        self.read(move |tx| Box::pin(async move { limit_reached(tx, &agent, &author, limits).await })).await
    }

    /// Counts a message before it has an answer. Returns the limit that its author has reached; then it is not counted. A
    /// message is counted once.
    pub async fn count_chat_message(
        &self,
        counted: CountedMessage,
        limits: MessageLimits,
        now: Timestamp,
    ) -> Result<Option<LimitReached>, StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                let CountedMessage { message, agent, author } = counted;
                lock_agent(tx, &agent).await?;
                if is_counted(tx, &agent, &message).await? {
                    return Ok(None);
                }
                if let Some(reached) = limit_reached(tx, &agent, &author, limits).await? {
                    return Ok(Some(reached));
                }
                let row = args![message, agent.as_str(), author, now];
                tx.execute(ADD_COUNTED_MESSAGE, row).await?;
                Ok(None)
            })
        })
        .await
    }
}

/// Checks whether a message was counted before it had an answer.
pub(super) async fn is_counted(
    tx: &mut Tx<'_>,
    agent: &AgentName,
    message: &str,
) -> Result<bool, StoreError> {
    Ok(tx.one(COUNTED_MESSAGE, args![message, agent.as_str()]).await?.is_some())
}

/// Returns the limit that does not allow one more message of a person. A caller that counts the message has to hold the
/// lock of the agent.
pub(super) async fn limit_reached(
    tx: &mut Tx<'_>,
    agent: &AgentName,
    author: &str,
    limits: MessageLimits,
) -> Result<Option<LimitReached>, StoreError> {
    if let Some((messages, since)) = limits.rate {
        let (mut count, mut first_at) = (0_u32, Timestamp::MAX);
        for statement in [COUNT_CHAT_ANSWERS, COUNT_COUNTED_MESSAGES] {
            let Some(row) = tx.one(statement, args![author, agent.as_str(), since]).await? else { continue };
            count = count.saturating_add(row.count("messages")?);
            first_at = row.time_opt("first_at")?.map_or(first_at, |first| first.min(first_at));
        }
        if count >= messages {
            return Ok(Some(LimitReached::Rate { first_at }));
        }
    }
    let Some(budget) = limits.budget else { return Ok(None) };
    Ok(chat_spending::over_with_message(tx, agent, budget).await?.map(LimitReached::Budget))
}

/// Removes the records of messages that were counted before this time.
pub(super) async fn forget(tx: &mut Tx<'_>, before: Timestamp) -> Result<(), StoreError> {
    tx.execute(FORGET_COUNTED_MESSAGES, args![before]).await.map(drop)
}

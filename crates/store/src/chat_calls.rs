//! Commands in chats that stop a job or reset a conversation. The target of a command is stored before the command
//! acts, so that a command that is delivered or handled again acts only once.

use cowhand_core::id::AgentName;
use jiff::Timestamp;

use super::database::db::{Tx, args};
use super::database::dialect::statements;
use super::{Store, StoreError};

statements! {
    ADD_CHAT_CALL = same "insert into chat_calls (call, target, called_at) values ($1, $2, $3) on conflict (call) do nothing";
    CHAT_CALL_TARGET = same "select target from chat_calls where call = $1";
    RESET_CHAT = same "insert into chat_conversations (agent, chat, resets, reset_at) values ($1, $2, 1, $3) \
        on conflict (agent, chat) do update set resets = chat_conversations.resets + 1, reset_at = excluded.reset_at";
    CHAT_RESETS = same "select resets from chat_conversations where agent = $1 and chat = $2";
    FORGET_CHAT_CALLS = same "delete from chat_calls where called_at < $1";
}

impl Store {
    /// Records the target of a command. Returns the target that was recorded first for this command.
    pub async fn decide_chat_call(
        &self,
        call: String,
        target: String,
        now: Timestamp,
    ) -> Result<String, StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                tx.execute(ADD_CHAT_CALL, args![call.as_str(), target.as_str(), now]).await?;
                let row = tx.one(CHAT_CALL_TARGET, args![call]).await?;
                row.map_or(Ok(target), |row| row.get("target"))
            })
        })
        .await
    }

    /// Returns the recorded target of a command; `None` if there is none.
    pub async fn chat_call(&self, call: String) -> Result<Option<String>, StoreError> {
        let row = self.read(move |tx| Box::pin(async move { tx.one(CHAT_CALL_TARGET, args![call]).await }));
        row.await?.map(|row| row.get("target")).transpose()
    }

    /// Resets the session of a conversation because of a command: later jobs of the agent start a new session there.
    /// Returns false, without a reset, if the same command has done this before.
    pub async fn reset_chat(
        &self,
        call: String,
        agent: AgentName,
        chat: String,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                if tx.execute(ADD_CHAT_CALL, args![call, "reset", now]).await? == 0 {
                    return Ok(false);
                }
                tx.execute(RESET_CHAT, args![agent.as_str(), chat, now]).await?;
                Ok(true)
            })
        })
        .await
    }

    /// Returns how often the session of a conversation was reset.
    pub async fn chat_resets(&self, agent: AgentName, chat: String) -> Result<u32, StoreError> {
        let row = self
            .read(move |tx| Box::pin(async move { tx.one(CHAT_RESETS, args![agent.as_str(), chat]).await }));
        row.await?.map_or(Ok(0), |row| row.count("resets"))
    }
}

/// Removes the commands that were sent before this time.
pub(super) async fn forget(tx: &mut Tx<'_>, before: Timestamp) -> Result<(), StoreError> {
    tx.execute(FORGET_CHAT_CALLS, args![before]).await.map(drop)
}

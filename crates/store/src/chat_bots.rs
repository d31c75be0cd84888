//! Bots on chat platforms: the node that has the lease of each bot, and the state of its connection.

use cowhand_core::chat::ChatPlatform;
use cowhand_core::id::AgentName;
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::database::db::{Row, args};
use super::database::dialect::statements;
use super::jobs::to_json;
use super::{Store, StoreError};

statements! {
    LOCK_CHAT_BOT = locked "select node, until from chat_bots where bot = $1";
    HOLD_CHAT_BOT = same "insert into chat_bots (bot, node, until, platform, agents, state, changed_at) \
        values ($1, $2, $3, $4, $5, $6, $7) on conflict (bot) do update set node = excluded.node, until = excluded.until, \
        platform = excluded.platform, agents = excluded.agents, \
        state = case when chat_bots.node = excluded.node then chat_bots.state else excluded.state end, \
        changed_at = case when chat_bots.node = excluded.node then chat_bots.changed_at else excluded.changed_at end";
    SET_CHAT_BOT_STATE = same "update chat_bots set state = $3, changed_at = $4 where bot = $1 and node = $2";
    RELEASE_CHAT_BOT = same "update chat_bots set until = $3, state = $4, changed_at = $3 where bot = $1 and node = $2";
    IS_CHAT_BOT_OF = same "select bot from chat_bots where bot = $1 and node = $2";
    CHAT_BOTS = same "select * from chat_bots order by bot";
    SET_CHAT_BOT_INBOX = same "update chat_bots set inbox = $2 where bot = $1";
    DROP_CHAT_BOT = same "delete from chat_bots where bot = $1";
}

/// State of the connection of a bot, as it is stored for all nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum ChatBotState {
    /// Not connected now. `problem` is the reason, if it is known.
    Connecting { problem: Option<String> },
    /// Connected as this account.
    Connected { account: String },
    /// The platform refuses the bot, or its tokens are missing.
    Refused { reason: String },
    /// No daemon is connected for the bot.
    Stopped,
}

/// A bot with the node that has its lease, or had it last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatBotRecord {
    /// Key of the bot, which contains no secret.
    pub bot: String,
    pub node: String,
    pub platform: ChatPlatform,
    pub agents: Vec<AgentName>,
    pub state: ChatBotState,
    /// Time of the last change of the state.
    pub changed_at: Timestamp,
    /// End of the node's lease.
    pub until: Timestamp,
    /// Key under which the messages of the bot are stored; none before its first connection.
    pub inbox: Option<String>,
}

impl Store {
    /// Takes or renews the lease of a bot for a node. Returns false if another node has it.
    pub async fn hold_chat_bot(
        &self,
        bot: String,
        node: String,
        (platform, agents): (ChatPlatform, Vec<AgentName>),
        lease: SignedDuration,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                let clock = tx.lease_clock(now).await?.wall;
                if let Some(row) = tx.one(LOCK_CHAT_BOT, args![bot.as_str()]).await? {
                    let holder: String = row.get("node")?;
                    if holder != node && row.time("until")? > clock {
                        return Ok(false);
                    }
                }
                let until = clock.checked_add(lease).unwrap_or(Timestamp::MAX);
                let state = to_json(&ChatBotState::Connecting { problem: None })?;
                let agents = to_json(&agents)?;
                let row = args![bot, node, until, platform.as_str(), agents, state, now];
                tx.execute(HOLD_CHAT_BOT, row).await?;
                Ok(true)
            })
        })
        .await
    }

    /// Records the state of the connection of this node. Does nothing if another node has the lease.
    pub async fn set_chat_bot_state(
        &self,
        bot: String,
        node: String,
        state: ChatBotState,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                let row = args![bot, node, to_json(&state)?, now];
                tx.execute(SET_CHAT_BOT_STATE, row).await.map(drop)
            })
        })
        .await
    }

    /// Records the key under which the messages of a bot are stored.
    pub async fn set_chat_bot_inbox(&self, bot: String, inbox: String) -> Result<(), StoreError> {
        self.write(move |tx| {
            Box::pin(async move { tx.execute(SET_CHAT_BOT_INBOX, args![bot, inbox]).await.map(drop) })
        })
        .await
    }

    /// Ends the lease of a node, so that another node can connect at once.
    pub async fn release_chat_bot(
        &self,
        bot: String,
        node: String,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                let clock = tx.lease_clock(now).await?.wall;
                let row = args![bot, node, clock, to_json(&ChatBotState::Stopped)?];
                tx.execute(RELEASE_CHAT_BOT, row).await.map(drop)
            })
        })
        .await
    }

    /// Returns whether a node was the last to get the lease of a bot.
    pub async fn is_chat_bot_of(&self, bot: String, node: String) -> Result<bool, StoreError> {
        let row =
            self.read(move |tx| Box::pin(async move { tx.one(IS_CHAT_BOT_OF, args![bot, node]).await }));
        Ok(row.await?.is_some())
    }

    /// Removes a bot that no agent uses any more.
    pub async fn drop_chat_bot(&self, bot: String) -> Result<(), StoreError> {
        self.write(move |tx| Box::pin(async move { tx.execute(DROP_CHAT_BOT, args![bot]).await.map(drop) }))
            .await
    }

    /// Returns all bots.
    pub async fn chat_bots(&self) -> Result<Vec<ChatBotRecord>, StoreError> {
        let rows = self.read(|tx| Box::pin(async move { tx.all(CHAT_BOTS, args![]).await })).await?;
        rows.iter().map(read).collect()
    }
}

fn read(row: &Row) -> Result<ChatBotRecord, StoreError> {
    Ok(ChatBotRecord {
        bot: row.get("bot")?,
        node: row.get("node")?,
        platform: row.parse("platform")?,
        agents: row.json_opt("agents")?.unwrap_or_default(),
        state: row.json_opt("state")?.ok_or_else(|| row.unreadable("state", ""))?,
        changed_at: row.time("changed_at")?,
        until: row.time("until")?,
        inbox: row.get("inbox")?,
    })
}

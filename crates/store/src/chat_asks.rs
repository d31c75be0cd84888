//! Asks that were posted in chats, and the messages that answer them.

use cowhand_core::ask::AskId;
use cowhand_core::chat::posting::PostedAsk;
use cowhand_core::id::JobId;

use super::database::db::{Row, args};
use super::database::dialect::statements;
use super::jobs::to_json;
use super::{Store, StoreError};

statements! {
    SAVE_CHAT_ASK = same "insert into chat_asks (job_id, number, post, state) values ($1, $2, $3, 'open') \
        on conflict (job_id, number) do update set post = excluded.post";
    CHAT_ASK = same "select * from chat_asks where job_id = $1 and number = $2";
    CHAT_ASKS_OF_JOB = same "select * from chat_asks where job_id = $1 order by number";
    OPEN_CHAT_ASKS = same "select * from chat_asks where state = 'open' order by job_id, number";
    CLOSE_CHAT_ASK = same "update chat_asks set state = 'closed' where job_id = $1 and number = $2";
    SAVE_ASK_REPLY = same "update chat_asks set reply = $3 where job_id = $1 and number = $2";
    CHAT_ASKS_OF_REPLY = same "select * from chat_asks where reply = $1 order by job_id, number";
}

/// An ask that was posted in a chat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatAsk {
    pub id: AskId,
    pub posted: PostedAsk,
    /// True once the posts show the answer in place of the buttons.
    pub is_closed: bool,
}

impl Store {
    /// Saves which posts of an ask have been made. Call this before each post and after it.
    pub async fn save_chat_ask(&self, ask: AskId, posted: PostedAsk) -> Result<(), StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                let row = args![ask.job.as_str(), ask.number, to_json(&posted)?];
                tx.execute(SAVE_CHAT_ASK, row).await.map(drop)
            })
        })
        .await
    }

    /// Returns the posts of an ask; `None` if it was not posted in a chat.
    pub async fn chat_ask(&self, ask: AskId) -> Result<Option<ChatAsk>, StoreError> {
        let row = self.read(move |tx| {
            Box::pin(async move { tx.one(CHAT_ASK, args![ask.job.as_str(), ask.number]).await })
        });
        row.await?.as_ref().map(read).transpose()
    }

    /// Returns the posted asks of a job in their order.
    pub async fn chat_asks_of(&self, job: JobId) -> Result<Vec<ChatAsk>, StoreError> {
        let rows =
            self.read(move |tx| Box::pin(async move { tx.all(CHAT_ASKS_OF_JOB, args![job.as_str()]).await }));
        rows.await?.iter().map(read).collect()
    }

    /// Returns the posted asks whose posts still show buttons.
    pub async fn open_chat_asks(&self) -> Result<Vec<ChatAsk>, StoreError> {
        let rows = self.read(|tx| Box::pin(async move { tx.all(OPEN_CHAT_ASKS, args![]).await })).await?;
        rows.iter().map(read).collect()
    }

    /// Records that the posts of an ask no longer show buttons.
    pub async fn close_chat_ask(&self, ask: AskId) -> Result<(), StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                tx.execute(CLOSE_CHAT_ASK, args![ask.job.as_str(), ask.number]).await.map(drop)
            })
        })
        .await
    }

    /// Records the message that answers an ask. Call this before the answer is stored.
    pub async fn save_ask_reply(&self, ask: AskId, message: String) -> Result<(), StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                tx.execute(SAVE_ASK_REPLY, args![ask.job.as_str(), ask.number, message]).await.map(drop)
            })
        })
        .await
    }

    /// Returns the asks for which a message was recorded as the answer.
    pub async fn chat_asks_of_reply(&self, message: String) -> Result<Vec<ChatAsk>, StoreError> {
        let rows =
            self.read(move |tx| Box::pin(async move { tx.all(CHAT_ASKS_OF_REPLY, args![message]).await }));
        rows.await?.iter().map(read).collect()
    }
}

fn read(row: &Row) -> Result<ChatAsk, StoreError> {
    Ok(ChatAsk {
        id: AskId { job: row.parse("job_id")?, number: row.count("number")? },
        posted: row.json_opt("post")?.ok_or_else(|| row.unreadable("post", ""))?,
        is_closed: row.get::<String>("state")? == "closed",
    })
}

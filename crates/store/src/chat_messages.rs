//! Messages from chat platforms. A message is stored before it is confirmed to the platform, and handled once.

use cowhand_core::chat::{ChatMessage, ChatPlace};
use jiff::Timestamp;

use super::database::db::{Row, args};
use super::database::dialect::statements;
use super::jobs::to_json;
use super::{Store, StoreError};

statements! {
    ADD_CHAT_MESSAGE = same "insert into chat_messages (bot, id, channel, sent_at, received_at, body) \
        values ($1, $2, $3, $4, $5, $6) on conflict (bot, id) do nothing";
    CHAT_CHANNEL_SEEN = same "insert into chat_channels (bot, channel, place, sent_at) values ($1, $2, $3, $4) \
        on conflict (bot, channel) do update set sent_at = excluded.sent_at, place = excluded.place \
        where chat_channels.sent_at < excluded.sent_at";
    RECEIVED_CHAT_MESSAGES = same "select * from chat_messages where bot = $1 and body is not null \
        order by sent_at, id limit $2";
    CHAT_MESSAGE_HANDLED = same "update chat_messages set body = null where bot = $1 and id = $2 and body is not null";
    EDIT_CHAT_MESSAGE = same "update chat_messages set body = $3 where bot = $1 and id = $2 and body is not null";
    CHAT_CHANNELS = same "select place, sent_at from chat_channels where bot = $1 and sent_at >= $2 order by channel";
    FORGET_CHAT_MESSAGES = same "delete from chat_messages where received_at < $1 and body is null";
}

/// A stored message that is not handled yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedChatMessage {
    pub id: String,
    /// Channel within which the messages are handled in their order.
    pub channel: String,
    pub received_at: Timestamp,
    pub message: ChatMessage,
}

/// A channel or thread in which a bot has received messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenChatChannel {
    pub place: ChatPlace,
    /// Time of the newest stored message.
    pub sent_at: Timestamp,
}

impl Store {
    /// Stores a message. Returns false if it is already stored.
    pub async fn receive_chat_message(
        &self,
        bot: String,
        message: ChatMessage,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                let (channel, body) = (channel_key(&message.place), to_json(&message)?);
                let sent_at = message.sent_at;
                let seen = args![bot.as_str(), channel.as_str(), to_json(&message.place)?, sent_at];
                tx.execute(CHAT_CHANNEL_SEEN, seen).await?;
                let row = args![bot, message.id, channel, sent_at, now, body];
                Ok(tx.execute(ADD_CHAT_MESSAGE, row).await? > 0)
            })
        })
        .await
    }

    /// Replaces the content of a message that is not handled yet. Returns false if it is handled, or not stored.
    pub async fn edit_chat_message(&self, bot: String, message: ChatMessage) -> Result<bool, StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                let body = to_json(&message)?;
                Ok(tx.execute(EDIT_CHAT_MESSAGE, args![bot, message.id, body]).await? > 0)
            })
        })
        .await
    }

    /// Returns at most `limit` messages that are not handled yet, in the order in which they were sent.
    pub async fn received_chat_messages(
        &self,
        bot: String,
        limit: u32,
    ) -> Result<Vec<ReceivedChatMessage>, StoreError> {
        let rows = self
            .read(move |tx| Box::pin(async move { tx.all(RECEIVED_CHAT_MESSAGES, args![bot, limit]).await }));
        rows.await?.iter().map(read).collect()
    }

    /// Records that a message is handled. Returns false if it was handled before, or is not stored.
    pub async fn chat_message_handled(&self, bot: String, id: String) -> Result<bool, StoreError> {
        self.write(move |tx| {
            Box::pin(async move { Ok(tx.execute(CHAT_MESSAGE_HANDLED, args![bot, id]).await? > 0) })
        })
        .await
    }

    /// Returns the channels and threads in which the bot has received messages since this time.
    pub async fn chat_channels(
        &self,
        bot: String,
        since: Timestamp,
    ) -> Result<Vec<SeenChatChannel>, StoreError> {
        let rows =
            self.read(move |tx| Box::pin(async move { tx.all(CHAT_CHANNELS, args![bot, since]).await }));
        let channel = |row: &Row| {
            let place = row.json_opt("place")?.ok_or_else(|| row.unreadable("place", ""))?;
            Ok(SeenChatChannel { place, sent_at: row.time("sent_at")? })
        };
        rows.await?.iter().map(channel).collect()
    }

    /// Removes handled messages that were received before this time. Their firings keep their keys, so a message that
    /// is delivered again still runs once.
    pub async fn forget_chat_messages(&self, before: Timestamp) -> Result<u64, StoreError> {
        self.write(move |tx| Box::pin(async move { tx.execute(FORGET_CHAT_MESSAGES, args![before]).await }))
            .await
    }
}

/// Returns the key within which messages are handled in their order: the channel or the thread.
fn channel_key(place: &ChatPlace) -> String {
    place
        .thread
        .as_ref()
        .map_or_else(|| place.channel.clone(), |thread| format!("{}/{thread}", place.channel))
}

fn read(row: &Row) -> Result<ReceivedChatMessage, StoreError> {
    Ok(ReceivedChatMessage {
        id: row.get("id")?,
        channel: row.get("channel")?,
        received_at: row.time("received_at")?,
        message: row.json_opt("body")?.ok_or_else(|| row.unreadable("body", ""))?,
    })
}

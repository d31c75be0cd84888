//! Messages from chat platforms. A message is stored before it is confirmed to the platform, and handled once.

use cowhand_core::chat::{ChatMessage, ChatPlace};
use jiff::Timestamp;

use super::database::db::{Row, Tx, args};
use super::database::dialect::statements;
use super::jobs::to_json;
use super::{Store, StoreError, chat_calls, chat_limits};

statements! {
    ADD_CHAT_MESSAGE = same "insert into chat_messages (bot, id, channel, sent_at, received_at, body) \
        values ($1, $2, $3, $4, $5, $6) on conflict (bot, id) do nothing";
    CHAT_CHANNEL_SEEN = same "insert into chat_channels (bot, channel, place, sent_at, parent) \
        values ($1, $2, $3, $4, $5) on conflict (bot, channel) do update set sent_at = excluded.sent_at, place = excluded.place \
        where chat_channels.sent_at < excluded.sent_at";
    OPEN_CHAT_CHANNELS = same "select distinct channel from chat_messages where bot = $1 and body is not null";
    OPEN_CHAT_MESSAGES = same "select id from chat_messages where bot = $1 and channel = $2 and body is not null \
        order by sent_at, id limit $3";
    OPEN_CHAT_MESSAGE = same "select * from chat_messages where bot = $1 and id = $2 and body is not null";
    CHAT_MESSAGE_HANDLED = same "update chat_messages set body = null where bot = $1 and id = $2 and body is not null";
    EDIT_CHAT_MESSAGE = same "update chat_messages set body = $3 where bot = $1 and id = $2 and body is not null";
    CHAT_CHANNELS = same "select place, sent_at from chat_channels where bot = $1 and parent = $2 and sent_at >= $3 \
        order by sent_at desc limit $4";
    CHAT_RECEIVED_UNTIL = same "select received_until from chat_inboxes where bot = $1";
    SET_CHAT_RECEIVED_UNTIL = same "insert into chat_inboxes (bot, received_until) values ($1, $2) \
        on conflict (bot) do update set received_until = excluded.received_until \
        where chat_inboxes.received_until < excluded.received_until or chat_inboxes.received_until > $3";
    FORGET_CHAT_MESSAGES = same "delete from chat_messages where received_at < $1 and body is null";
    FORGET_CHAT_CHANNELS = same "delete from chat_channels where sent_at < $1";
}

/// A stored message that is not handled yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedChatMessage {
    pub id: String,
    pub received_at: Timestamp,
    pub message: ChatMessage,
}

/// A channel or thread in which a bot has received or answered messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenChatChannel {
    pub place: ChatPlace,
    /// Time of the newest message or answer.
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
                let (body, sent_at) = (to_json(&message)?, message.sent_at);
                note_channel(tx, &bot, &message.place, sent_at).await?;
                let row = args![bot, message.id, message.place.channel, sent_at, now, body];
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

    /// Returns the channels with messages that are not handled yet. A channel contains its threads.
    pub async fn open_chat_channels(&self, bot: String) -> Result<Vec<String>, StoreError> {
        let rows = self.read(move |tx| Box::pin(async move { tx.all(OPEN_CHAT_CHANNELS, args![bot]).await }));
        rows.await?.iter().map(|row| row.get("channel")).collect()
    }

    /// Returns the ids of at most `limit` unhandled messages of a channel, in the order in which they were sent.
    pub async fn open_chat_messages(
        &self,
        bot: String,
        channel: String,
        limit: u32,
    ) -> Result<Vec<String>, StoreError> {
        let rows = self.read(move |tx| {
            Box::pin(async move { tx.all(OPEN_CHAT_MESSAGES, args![bot, channel, limit]).await })
        });
        rows.await?.iter().map(|row| row.get("id")).collect()
    }

    /// Returns a message; none if it is handled, or not stored.
    pub async fn open_chat_message(
        &self,
        bot: String,
        id: String,
    ) -> Result<Option<ReceivedChatMessage>, StoreError> {
        let row =
            self.read(move |tx| Box::pin(async move { tx.one(OPEN_CHAT_MESSAGE, args![bot, id]).await }));
        row.await?.as_ref().map(read).transpose()
    }

    /// Records that a message is handled. Returns false if it was handled before, or is not stored.
    pub async fn chat_message_handled(&self, bot: String, id: String) -> Result<bool, StoreError> {
        self.write(move |tx| {
            Box::pin(async move { Ok(tx.execute(CHAT_MESSAGE_HANDLED, args![bot, id]).await? > 0) })
        })
        .await
    }

    /// Returns the time up to which the bot has received all messages; none if it was never connected.
    pub async fn chat_received_until(&self, bot: String) -> Result<Option<Timestamp>, StoreError> {
        let row = self.read(move |tx| Box::pin(async move { tx.one(CHAT_RECEIVED_UNTIL, args![bot]).await }));
        row.await?.map(|row| row.time("received_until")).transpose()
    }

    /// Records that the bot has received all messages up to this time. The recorded time goes back only if it is after
    /// `now`, because the clock was ahead.
    pub async fn set_chat_received_until(
        &self,
        bot: String,
        until: Timestamp,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.write(move |tx| {
            Box::pin(
                async move { tx.execute(SET_CHAT_RECEIVED_UNTIL, args![bot, until, now]).await.map(drop) },
            )
        })
        .await
    }

    /// Returns at most `limit` channels in which the bot has received or answered messages since this time, also in
    /// threads; those with the newest messages first.
    pub async fn chat_channels(
        &self,
        bot: String,
        since: Timestamp,
        limit: usize,
    ) -> Result<Vec<SeenChatChannel>, StoreError> {
        self.seen_within(bot, String::new(), since, limit).await
    }

    /// Returns at most `limit` threads of a channel in which the bot has received or answered messages since this time,
    /// those with the newest messages first.
    pub async fn chat_threads(
        &self,
        bot: String,
        channel: String,
        since: Timestamp,
        limit: usize,
    ) -> Result<Vec<SeenChatChannel>, StoreError> {
        self.seen_within(bot, channel, since, limit).await
    }

    async fn seen_within(
        &self,
        bot: String,
        parent: String,
        since: Timestamp,
        limit: usize,
    ) -> Result<Vec<SeenChatChannel>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = self.read(move |tx| {
            Box::pin(async move { tx.all(CHAT_CHANNELS, args![bot, parent, since, limit]).await })
        });
        let channel = |row: &Row| {
            let place = row.json_opt("place")?.ok_or_else(|| row.unreadable("place", ""))?;
            Ok(SeenChatChannel { place, sent_at: row.time("sent_at")? })
        };
        rows.await?.iter().map(channel).collect()
    }

    /// Removes handled messages and commands that were received before this time, and the channels and threads without a
    /// later message. The firings of the messages keep their keys, so a message that is delivered again still runs once.
    pub async fn forget_chat_messages(&self, before: Timestamp) -> Result<u64, StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                tx.execute(FORGET_CHAT_CHANNELS, args![before]).await?;
                chat_calls::forget(tx, before).await?;
                chat_limits::forget(tx, before).await?;
                tx.execute(FORGET_CHAT_MESSAGES, args![before]).await
            })
        })
        .await
    }
}

/// Records the time of a message or an answer in a place, if it is the newest one. The place of a thread also counts for
/// its channel.
pub(super) async fn note_channel(
    tx: &mut Tx<'_>,
    bot: &str,
    place: &ChatPlace,
    sent_at: Timestamp,
) -> Result<(), StoreError> {
    if let Some(thread) = &place.thread {
        let (key, parent) = (format!("{}/{thread}", place.channel), place.channel.as_str());
        tx.execute(CHAT_CHANNEL_SEEN, args![bot, key, to_json(place)?, sent_at, parent]).await?;
    }
    let whole = ChatPlace { thread: None, ..place.clone() };
    let seen = args![bot, whole.channel.as_str(), to_json(&whole)?, sent_at, ""];
    tx.execute(CHAT_CHANNEL_SEEN, seen).await.map(drop)
}

fn read(row: &Row) -> Result<ReceivedChatMessage, StoreError> {
    Ok(ReceivedChatMessage {
        id: row.get("id")?,
        received_at: row.time("received_at")?,
        message: row.json_opt("body")?.ok_or_else(|| row.unreadable("body", ""))?,
    })
}

//! The messages that were sent while no daemon was connected. The platforms do not deliver them.
//!
//! The store has the time up to which the bot has received all messages. After a new connection, the messages since
//! then are read from every configured channel and from every channel and thread in which the bot was active before.
//! Until a channel is read, its new messages are stored but not handled, so that missed messages are handled before
//! them.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cowhand_chat::ChatError;
use cowhand_core::chat::ChatPlace;
use futures_util::{StreamExt, stream};
use jiff::{SignedDuration, Timestamp};
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use super::bot::{Bot, receive_message};
use super::context::ChatContext;
use super::posts::wait_after;
use cowhand_store::StoreError;

/// Maximum number of messages of one channel that are read.
const MAX_MISSED_MESSAGES: usize = 2_000;
/// Length of the period before the recorded time whose messages are read again. Some of them may not have been
/// received: a message can be in transit when the daemon is killed, and a lost connection is detected only after some
/// time.
const OVERLAP: SignedDuration = SignedDuration::from_mins(2);
/// Time after the last received message in which only messages up to its sending time count as received.
const BUSY_FOR: Duration = Duration::from_mins(1);
/// Maximum age of the last message of an active channel or thread.
const ACTIVE_WITHIN: SignedDuration = SignedDuration::from_hours(14 * 24);
/// Maximum number of active channels and threads whose messages are read.
const MAX_ACTIVE_CHANNELS: u32 = 200;
/// Maximum number of channels that are read at the same time.
const READ_TOGETHER: usize = 4;
/// Time after which new messages of a channel are handled, even if the channel could not be read.
const HOLD_BACK_FOR: Duration = Duration::from_mins(2);

/// State of the reading of missed messages of a bot.
#[derive(Debug, Default)]
pub(super) struct MissedMessages(Mutex<MissedState>);

#[derive(Debug, Default)]
struct MissedState {
    /// Channels that are not read yet. Their new messages wait.
    reading: HashSet<String>,
    /// True if all messages up to now are received, while the bot is connected.
    is_complete: bool,
    /// Time at which the connection was begun.
    connecting_at: Option<Timestamp>,
    /// Times of the last received message: when it was received, and when it was sent.
    last: Option<(Instant, Timestamp)>,
}

/// Channels that have to be read after a new connection.
#[derive(Debug)]
pub(super) struct MissedReading {
    inbox: String,
    connected_at: Timestamp,
    /// Time since which messages may be missing.
    since: Timestamp,
    /// The channels, each with its active threads.
    channels: Vec<(ChatPlace, Vec<String>)>,
}

impl MissedMessages {
    pub(super) fn is_reading(&self, channel: &str) -> bool {
        self.lock().reading.contains(channel)
    }

    pub(super) fn is_complete(&self) -> bool {
        self.lock().is_complete
    }

    /// Records that messages may be missing from now on.
    pub(super) fn set_incomplete(&self) {
        self.lock().is_complete = false;
    }

    /// Records that a connection is begun.
    pub(super) fn begin_connection(&self, now: Timestamp) {
        *self.lock() = MissedState { connecting_at: Some(now), ..MissedState::default() };
    }

    /// Records that a message is stored.
    pub(super) fn note_message(&self, sent_at: Timestamp) {
        self.lock().last = Some((Instant::now(), sent_at));
    }

    /// Returns the time up to which all messages are received. It considers the sending time of the last message,
    /// because the messages of a burst are received later than they are sent.
    fn received_until(&self, now: Timestamp) -> Timestamp {
        let last = self.lock().last.filter(|(at, _)| at.elapsed() < BUSY_FOR);
        ago(last.map_or(now, |(_, sent_at)| sent_at.min(now)), OVERLAP)
    }

    fn end_reading(&self, channel: &str) {
        self.lock().reading.remove(channel);
    }

    fn lock(&self) -> MutexGuard<'_, MissedState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the channels that have to be read, and holds back their new messages. Returns none for a bot that was never
/// connected before, because nobody expects an answer to earlier messages.
pub(super) async fn begin_reading(
    context: &ChatContext,
    bot: &Bot,
) -> Result<Option<MissedReading>, StoreError> {
    bot.missed.set_incomplete();
    let Some(inbox) = bot.inbox() else { return Ok(None) };
    let (store, connected_at) = (context.store(), context.now());
    let Some(until) = store.chat_received_until(inbox.clone()).await? else {
        // Messages may have arrived since the connection was begun.
        let connecting_at = bot.missed.lock().connecting_at.unwrap_or(connected_at);
        store.set_chat_received_until(inbox, connecting_at).await?;
        bot.missed.lock().is_complete = true;
        return Ok(None);
    };
    let since = until.max(ago(connected_at, context.max_lateness(bot)));
    let active_since = ago(connected_at, ACTIVE_WITHIN);
    let active = store.chat_channels(inbox.clone(), active_since, MAX_ACTIVE_CHANNELS).await?;
    let active = active.into_iter().map(|active| active.place);
    let channels = by_channel(configured_places(context, bot).into_iter().chain(active));
    bot.missed.lock().reading = channels.iter().map(|(place, _)| place.channel.clone()).collect();
    Ok(Some(MissedReading { inbox, connected_at, since, channels }))
}

/// Reads and stores the missed messages.
pub(super) async fn read(context: &ChatContext, bot: &Bot, reading: MissedReading) {
    let MissedReading { inbox, connected_at, since, channels } = reading;
    let read_one = |(place, threads): (ChatPlace, Vec<String>)| async move {
        read_channel(context, bot, &place, &threads, since).await;
        bot.missed.end_reading(&place.channel);
        bot.received.notify_one();
    };
    stream::iter(channels).for_each_concurrent(READ_TOGETHER, read_one).await;
    bot.missed.lock().is_complete = true;
    if let Err(error) = context.store().set_chat_received_until(inbox, ago(connected_at, OVERLAP)).await {
        // The next renewal of the lease records it.
        warn!(bot = bot.key, "cannot record that the missed chat messages are read: {error}");
    }
}

/// Records up to which time all messages are received.
pub(super) async fn record_received(
    context: &ChatContext,
    bot: &Bot,
    inbox: String,
    now: Timestamp,
) -> Result<(), StoreError> {
    context.store().set_chat_received_until(inbox, bot.missed.received_until(now)).await
}

fn ago(time: Timestamp, span: SignedDuration) -> Timestamp {
    time.checked_sub(span).unwrap_or(Timestamp::MIN)
}

/// Reads one channel. Tries again until the platform answers.
async fn read_channel(
    context: &ChatContext,
    bot: &Bot,
    place: &ChatPlace,
    threads: &[String],
    since: Timestamp,
) {
    let (channel, began_at) = (place.channel.as_str(), Instant::now());
    let mut failures = 0;
    loop {
        match bot.connector.missed(place, threads, since, MAX_MISSED_MESSAGES).await {
            Ok(missed) => {
                if missed.len() >= MAX_MISSED_MESSAGES {
                    warn!(bot = bot.key, channel, "only the newest {MAX_MISSED_MESSAGES} messages are read");
                }
                for message in missed {
                    receive_message(context, bot, message).await;
                }
                return;
            }
            Err(error) if error.is_temporary() => {
                failures += 1;
                if failures == 1 {
                    warn!(
                        bot = bot.key,
                        channel, "cannot read the messages that were sent meanwhile now: {error}"
                    );
                }
                if began_at.elapsed() > HOLD_BACK_FOR {
                    bot.missed.end_reading(channel);
                    bot.received.notify_one();
                }
                sleep(wait_after(&error, failures)).await;
            }
            // For example, the channel does not exist any more.
            Err(error @ (ChatError::Refused { .. } | ChatError::TooLarge { .. })) => {
                return info!(
                    bot = bot.key,
                    channel, "the messages that were sent meanwhile are not read: {error}"
                );
            }
            Err(error) => {
                return warn!(
                    bot = bot.key,
                    channel, "cannot read the messages that were sent meanwhile: {error}"
                );
            }
        }
    }
}

/// Returns the channels of the config.
fn configured_places(context: &ChatContext, bot: &Bot) -> Vec<ChatPlace> {
    let agents = context.agents_of(bot);
    let channels = agents.into_iter().flat_map(|(_, chat)| chat.channels);
    let place = |channel: cowhand_core::chat::settings::ChatChannel| ChatPlace {
        space: channel.guild,
        channel: channel.id,
        thread: None,
        is_direct: false,
    };
    channels.map(place).collect()
}

/// Groups places by channel: each channel once, with its threads.
fn by_channel(places: impl Iterator<Item = ChatPlace>) -> Vec<(ChatPlace, Vec<String>)> {
    let mut channels: BTreeMap<String, (ChatPlace, Vec<String>)> = BTreeMap::new();
    for place in places {
        let (channel, thread) = (place.channel.clone(), place.thread.clone());
        let whole = || (ChatPlace { thread: None, ..place }, Vec::new());
        let (_, threads) = channels.entry(channel).or_insert_with(whole);
        threads.extend(thread.filter(|thread| !threads.contains(thread)));
    }
    channels.into_values().collect()
}

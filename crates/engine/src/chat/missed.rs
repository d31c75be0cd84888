//! The messages that were sent while no daemon was connected. The platforms do not deliver them.
//!
//! The store has the time up to which the bot has received all messages. After a new connection, the messages since
//! then are read from every configured channel and from every channel and thread in which the bot was active before.
//! Until a channel is read, its new messages are stored but not handled, so that missed messages are handled before
//! them.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cowhand_chat::ChatError;
use cowhand_core::chat::ChatPlace;
use futures_util::{StreamExt, stream};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use super::bot::{Bot, receive_message, retried};
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
/// Maximum number of active channels and direct conversations whose messages are read.
const MAX_ACTIVE_CHANNELS: usize = 1_000;
/// Maximum number of active threads of one channel whose messages are read, besides those that the platform lists.
const MAX_ACTIVE_THREADS: usize = 50;
/// Time by which a recorded time may be later than now without counting as wrong.
const CLOCK_TOLERANCE: SignedDuration = SignedDuration::from_mins(1);
/// Maximum number of channels that are read at the same time.
const READ_TOGETHER: usize = 4;
/// Time after a new connection after which new messages are handled, even if their channels are not read yet.
const HOLD_BACK_FOR: Duration = Duration::from_mins(2);

/// State of the reading of missed messages of a bot.
#[derive(Debug, Default)]
pub(super) struct MissedMessages {
    state: Mutex<MissedState>,
    /// Number of messages that the connection has passed on and that are not stored yet.
    taken: AtomicUsize,
}

/// A message that is not stored yet. It is stored, or lost with its connection, when this value is dropped.
#[derive(Debug)]
pub(super) struct TakenMessage<'a>(&'a AtomicUsize);

impl Drop for TakenMessage<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[derive(Debug, Default)]
struct MissedState {
    /// Channels that are not read yet. Their new messages wait.
    reading: HashSet<String>,
    /// True if all messages up to now are received, while the bot is connected.
    is_complete: bool,
    /// Time at which the connection was begun.
    connecting_at: Option<Instant>,
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
    channels: Vec<ChatPlace>,
}

impl MissedMessages {
    pub(super) fn is_reading(&self, channel: &str) -> bool {
        self.lock().reading.contains(channel)
    }

    /// Returns whether all messages up to now are received and stored.
    pub(super) fn is_complete(&self) -> bool {
        self.lock().is_complete && self.taken.load(Ordering::SeqCst) == 0
    }

    /// Records that the connection has passed on a message.
    pub(super) fn take_message(&self) -> TakenMessage<'_> {
        self.taken.fetch_add(1, Ordering::SeqCst);
        TakenMessage(&self.taken)
    }

    /// Records that messages may be missing from now on.
    pub(super) fn set_incomplete(&self) {
        self.lock().is_complete = false;
    }

    /// Records that a connection is begun.
    pub(super) fn begin_connection(&self) {
        *self.lock() = MissedState { connecting_at: Some(Instant::now()), ..MissedState::default() };
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

    /// Waits for the end of a reading, and holds back new messages for a part of this time.
    async fn hold_back_during(&self, received: &Notify, reading: impl Future<Output = ()>) {
        let mut reading = std::pin::pin!(reading);
        if timeout(HOLD_BACK_FOR, &mut reading).await.is_err() {
            self.lock().reading.clear();
            received.notify_one();
            reading.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, MissedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
    // The times of messages are by the clock of the platform.
    let (store, connected_at) = (context.store(), bot.connector.now());
    let Some(until) = store.chat_received_until(inbox.clone()).await? else {
        // Messages may have arrived since the connection was begun.
        let connecting_for = bot.missed.lock().connecting_at.map(|at| at.elapsed()).unwrap_or_default();
        let connecting_at = connected_at.checked_sub(connecting_for).unwrap_or(connected_at);
        store.set_chat_received_until(inbox, connecting_at, latest(connected_at)).await?;
        bot.missed.lock().is_complete = true;
        return Ok(None);
    };
    let since = missing_since(until, connected_at).max(ago(connected_at, context.max_lateness(bot)));
    let active_since = ago(connected_at, ACTIVE_WITHIN);
    let mut active = store.chat_channels(inbox.clone(), active_since, MAX_ACTIVE_CHANNELS + 1).await?;
    if active.len() > MAX_ACTIVE_CHANNELS {
        active.truncate(MAX_ACTIVE_CHANNELS);
        let read = "the missed messages are read only in the channels of the config and in the";
        warn!(bot = bot.key, "{read} {MAX_ACTIVE_CHANNELS} channels and direct conversations used last");
    }
    let mut channels: BTreeMap<String, ChatPlace> = BTreeMap::new();
    let active = active.into_iter().map(|active| active.place);
    for place in configured_places(context, bot).into_iter().chain(active) {
        channels.entry(place.channel.clone()).or_insert(place);
    }
    bot.missed.lock().reading = channels.keys().cloned().collect();
    let channels = channels.into_values().collect();
    Ok(Some(MissedReading { inbox, connected_at, since, channels }))
}

/// Reads and stores the missed messages.
pub(super) async fn read(context: &ChatContext, bot: &Bot, reading: MissedReading) {
    let MissedReading { inbox, connected_at, since, channels } = reading;
    let active_since = ago(connected_at, ACTIVE_WITHIN);
    let inbox_ref = inbox.as_str();
    let read_one = |place: ChatPlace| async move {
        let threads = active_threads(context, bot, inbox_ref, &place.channel, active_since).await;
        read_channel(context, bot, &place, &threads, since).await;
        bot.missed.end_reading(&place.channel);
        bot.received.notify_one();
    };
    let reading = stream::iter(channels).for_each_concurrent(READ_TOGETHER, read_one);
    bot.missed.hold_back_during(&bot.received, reading).await;
    bot.missed.lock().is_complete = true;
    let until = ago(connected_at, OVERLAP);
    if let Err(error) = context.store().set_chat_received_until(inbox, until, latest(connected_at)).await {
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
    context.store().set_chat_received_until(inbox, bot.missed.received_until(now), latest(now)).await
}

/// Returns the time since which messages may be missing. A recorded time that is still to come is wrong: the clock was
/// ahead.
fn missing_since(until: Timestamp, connected_at: Timestamp) -> Timestamp {
    if until > latest(connected_at) { ago(connected_at, OVERLAP) } else { until.min(connected_at) }
}

/// Returns the latest time that can be recorded if the clocks are right.
fn latest(now: Timestamp) -> Timestamp {
    now.checked_add(CLOCK_TOLERANCE).unwrap_or(Timestamp::MAX)
}

fn ago(time: Timestamp, span: SignedDuration) -> Timestamp {
    time.checked_sub(span).unwrap_or(Timestamp::MIN)
}

/// Returns the threads of a channel in which the bot was active, those with the newest messages first.
async fn active_threads(
    context: &ChatContext,
    bot: &Bot,
    inbox: &str,
    channel: &str,
    since: Timestamp,
) -> Vec<String> {
    let of_channel =
        || context.store().chat_threads(inbox.to_owned(), channel.to_owned(), since, MAX_ACTIVE_THREADS + 1);
    let mut threads = retried(of_channel).await;
    if threads.len() > MAX_ACTIVE_THREADS {
        threads.truncate(MAX_ACTIVE_THREADS);
        let read = "the missed messages of old threads are read only in the";
        warn!(bot = bot.key, channel, "{read} {MAX_ACTIVE_THREADS} threads used last");
    }
    threads.into_iter().filter_map(|seen| seen.place.thread).collect()
}

/// Reads one channel. Tries again until the platform answers.
async fn read_channel(
    context: &ChatContext,
    bot: &Bot,
    place: &ChatPlace,
    threads: &[String],
    since: Timestamp,
) {
    let channel = place.channel.as_str();
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
                        channel, "cannot read the missed messages now; it is tried again: {error}"
                    );
                }
                sleep(wait_after(&error, failures)).await;
            }
            // For example, the channel does not exist any more.
            Err(error @ (ChatError::Refused { .. } | ChatError::TooLarge { .. })) => {
                return info!(bot = bot.key, channel, "the missed messages are not read: {error}");
            }
            Err(error) => {
                return warn!(bot = bot.key, channel, "cannot read the missed messages: {error}");
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn new_messages_are_held_back_for_two_minutes() {
        let (missed, received) = (MissedMessages::default(), Notify::new());
        missed.lock().reading = ["C1".to_owned(), "C2".to_owned()].into();
        let reading = async {
            sleep(HOLD_BACK_FOR / 2).await;
            missed.end_reading("C1");
            assert!(!missed.is_reading("C1") && missed.is_reading("C2"));
            sleep(HOLD_BACK_FOR).await;
            assert!(!missed.is_reading("C2"), "the platform has not answered for too long");
        };
        missed.hold_back_during(&received, reading).await;
    }

    #[test]
    fn a_message_that_is_not_stored_is_not_received() {
        let missed = MissedMessages::default();
        missed.lock().is_complete = true;
        let (one, other) = (missed.take_message(), missed.take_message());
        drop(one);
        assert!(!missed.is_complete());
        missed.begin_connection();
        drop(other);
        missed.lock().is_complete = true;
        assert!(missed.is_complete());
    }

    #[test]
    fn a_recorded_time_that_is_still_to_come_is_wrong() {
        let now: Timestamp = "2026-01-05T09:00:00Z".parse().unwrap();
        let seconds = SignedDuration::from_secs;
        for (until, since) in [
            (now - seconds(3600), now - seconds(3600)),
            (now, now),
            (now + seconds(30), now),
            (now + seconds(3600), now - OVERLAP),
        ] {
            assert_eq!(missing_since(until, now), since, "{until}");
        }
    }
}

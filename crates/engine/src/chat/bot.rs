//! One bot on a chat platform: the lease that one node has for it, its connection, and the events that it receives.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use cowhand_chat::{ConnectionEnd, ConnectionState, Connector, EventReply, ReceivedEvent};
use cowhand_core::backoff::Backoff;
use cowhand_core::chat::{ChatEvent, ChatMessage, ChatPlatform};
use cowhand_core::id::AgentName;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::ChatContext;
use super::{buttons, commands, intake};
use cowhand_store::ChatBotState;
use cowhand_system::fault;
use cowhand_system::panic;

/// Time for which the lease of a bot is valid without a renewal.
pub(super) const BOT_LEASE: SignedDuration = SignedDuration::from_secs(30);
/// Time between two renewals, and between two tries to get the lease.
const BOT_RENEWAL: Duration = Duration::from_secs(8);
/// Time before a refused bot is tried again without a change of the config.
const REFUSED_RETRY_AFTER: Duration = Duration::from_mins(10);
/// Number of events that wait for their reply.
const EVENT_QUEUE: usize = 16;
const STORE_BACKOFF: Backoff =
    Backoff::doubling(SignedDuration::from_millis(200), SignedDuration::from_secs(5));
/// Largest number of messages of one channel that are read after a downtime.
const MAX_MISSED_MESSAGES: usize = 500;

/// A bot with the agents that use it.
#[derive(Debug)]
pub(crate) struct Bot {
    /// Key of the bot in the store. It contains no secret.
    pub(super) key: String,
    pub(super) platform: ChatPlatform,
    pub(super) connector: Arc<dyn Connector>,
    /// Agents in the order of the config. They change with the config, while the bot stays connected.
    agents: RwLock<Vec<AgentName>>,
    /// Id of the account under which messages are stored; empty before the first connection.
    account: RwLock<String>,
    /// Signals a stored message.
    pub(super) received: Notify,
    /// Signals that a refused bot is to be tried again at once.
    pub(super) retry: Notify,
}

impl Bot {
    pub(super) fn new(
        key: String,
        platform: ChatPlatform,
        connector: Arc<dyn Connector>,
        agents: Vec<AgentName>,
    ) -> Self {
        let (agents, account) = (RwLock::new(agents), RwLock::default());
        let (received, retry) = (Notify::new(), Notify::new());
        Self { key, platform, connector, agents, account, received, retry }
    }

    pub(super) fn agents(&self) -> Vec<AgentName> {
        self.agents.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_agents(&self, agents: Vec<AgentName>) {
        *self.agents.write().unwrap_or_else(PoisonError::into_inner) = agents;
    }

    /// Returns the key under which the messages of this bot are stored; none before the first connection.
    pub(super) fn inbox(&self) -> Option<String> {
        let account = self.account.read().unwrap_or_else(PoisonError::into_inner);
        (!account.is_empty()).then(|| format!("{}:{account}", self.platform))
    }

    fn set_account(&self, account: &str) {
        account.clone_into(&mut self.account.write().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Connects a bot while this node has its lease, until `stop`.
pub(super) async fn keep_connected(
    context: Arc<ChatContext>,
    bot: Arc<Bot>,
    mut stop: watch::Receiver<bool>,
) {
    loop {
        let wait = match context.hold(&bot).await {
            Ok(true) => connect(&context, &bot, &mut stop).await,
            Ok(false) => BOT_RENEWAL,
            Err(error) => {
                warn!(bot = bot.key, "cannot take the lease of a chat bot: {error}");
                BOT_RENEWAL
            }
        };
        tokio::select! {
            is_stopped = stopped_within(&mut stop, wait) => if is_stopped { break },
            () = bot.retry.notified() => {}
        }
    }
    let now = context.now();
    if let Err(error) = context.store().release_chat_bot(bot.key.clone(), context.node(), now).await {
        warn!(bot = bot.key, "cannot release a chat bot; another node can connect later: {error}");
    }
}

/// Waits, and returns whether a stop was requested.
async fn stopped_within(stop: &mut watch::Receiver<bool>, wait: Duration) -> bool {
    tokio::time::timeout(wait, stopped(stop)).await.is_ok()
}

/// Waits for the request to stop.
pub(super) async fn stopped(stop: &mut watch::Receiver<bool>) {
    // Without a sender, nobody needs the bot any more.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Stays connected until a stop, the loss of the lease, or a refusal by the platform. Returns the wait before the next
/// try.
async fn connect(context: &Arc<ChatContext>, bot: &Arc<Bot>, stop: &mut watch::Receiver<bool>) -> Duration {
    let (events_sender, events) = mpsc::channel(EVENT_QUEUE);
    let mut tasks = JoinSet::new();
    tasks.spawn(record_states(Arc::clone(context), Arc::clone(bot)));
    tasks.spawn(intake::handle_messages(Arc::clone(context), Arc::clone(bot)));
    tasks.spawn(receive(Arc::clone(context), Arc::clone(bot), events));
    let mut connection = std::pin::pin!(bot.connector.run(events_sender));
    let mut renew_at = tokio::time::interval(BOT_RENEWAL);
    renew_at.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            ended = &mut connection => return match ended {
                ConnectionEnd::Stopped => BOT_RENEWAL,
                ConnectionEnd::Refused { reason } => {
                    warn!(bot = bot.key, "{} refuses the bot: {reason}", bot.platform);
                    context.record_state(bot, ChatBotState::Refused { reason }).await;
                    REFUSED_RETRY_AFTER
                }
            },
            () = stopped(stop) => return Duration::ZERO,
            _ = renew_at.tick() => match context.hold(bot).await {
                Ok(true) => {}
                Ok(false) => {
                    warn!(bot = bot.key, "another node has taken over the chat bot");
                    return BOT_RENEWAL;
                }
                // The platform delivers each event to one connection, so events that another node receives are not lost.
                Err(error) => warn!(bot = bot.key, "cannot renew the lease of a chat bot: {error}"),
            },
            Some(ended) = tasks.join_next() => panic::log_panic("a task of a chat bot", ended),
        }
    }
}

/// Records each state of the connection, for `status`.
async fn record_states(context: Arc<ChatContext>, bot: Arc<Bot>) {
    let mut states = bot.connector.state();
    loop {
        let state = match &*states.borrow_and_update() {
            ConnectionState::Connecting { problem } => ChatBotState::Connecting { problem: problem.clone() },
            ConnectionState::Connected(account) => ChatBotState::Connected { account: account.name.clone() },
            ConnectionState::Refused { reason } => ChatBotState::Refused { reason: reason.clone() },
        };
        context.record_state(&bot, state).await;
        if states.changed().await.is_err() {
            return;
        }
    }
}

/// Receives events one after the other, until the connection ends. Commands and buttons are answered beside the
/// messages.
async fn receive(context: Arc<ChatContext>, bot: Arc<Bot>, mut events: mpsc::Receiver<ReceivedEvent>) {
    let mut answering = JoinSet::new();
    while let Some(ReceivedEvent { event, reply }) = events.recv().await {
        while let Some(ended) = answering.try_join_next() {
            panic::log_panic("the answer to a command", ended);
        }
        let stored = match event {
            ChatEvent::Connected(account) => {
                info!(bot = bot.key, "connected to {} as {}", bot.platform, account.name);
                bot.set_account(&account.id);
                context.record_inbox(&bot).await;
                bot.received.notify_one();
                let (context, bot) = (Arc::clone(&context), Arc::clone(&bot));
                answering.spawn(async move { read_missed(&context, &bot).await });
                true
            }
            ChatEvent::Message(message) => receive_message(&context, &bot, message).await,
            ChatEvent::Edited(message) => retried(|| intake::edited(&context, &bot, &message)).await,
            ChatEvent::Deleted { message } => retried(|| intake::deleted(&context, &bot, &message)).await,
            ChatEvent::Command(call) => {
                let (context, bot) = (Arc::clone(&context), Arc::clone(&bot));
                answering.spawn(async move {
                    let text = commands::answer_call(&context, &bot, &call).await;
                    // The connection may have ended meanwhile.
                    let _ = reply.send(EventReply::Text(text));
                });
                continue;
            }
            ChatEvent::Button(press) => {
                let (context, bot) = (Arc::clone(&context), Arc::clone(&bot));
                answering.spawn(async move {
                    let text = buttons::answer_press(&context, &bot, &press).await;
                    let _ = reply.send(EventReply::Text(text));
                });
                continue;
            }
        };
        if stored {
            // The connection may have ended meanwhile; a message that is delivered again is known.
            let _ = reply.send(EventReply::Stored);
        }
    }
}

/// Stores a message that an agent may answer. Messages that no agent answers are confirmed without being stored.
async fn receive_message(context: &ChatContext, bot: &Bot, message: ChatMessage) -> bool {
    let Some(inbox) = bot.inbox() else { return false };
    if intake::is_ignored(context, bot, &message) {
        return true;
    }
    let now = context.now();
    retried(|| context.store().receive_chat_message(inbox.clone(), message.clone(), now)).await;
    fault::point("chat_received");
    bot.received.notify_one();
    true
}

/// Repeats a write until it succeeds, so that no event is lost while the store is away. The platform waits meanwhile.
async fn retried<T, E: fmt::Display, F: Future<Output = Result<T, E>>>(mut write: impl FnMut() -> F) -> bool {
    let mut failures = 0;
    while let Err(error) = write().await {
        failures += 1;
        if failures == 1 {
            warn!("cannot store an event of a chat; it is tried again: {error}");
        }
        tokio::time::sleep(STORE_BACKOFF.pause_after(failures)).await;
    }
    true
}

/// Reads the messages that were sent while no daemon was connected. The platforms do not deliver them.
async fn read_missed(context: &ChatContext, bot: &Bot) {
    let Some(inbox) = bot.inbox() else { return };
    let max_lateness = context.max_lateness(bot);
    let earliest = context.now().checked_sub(max_lateness).unwrap_or(Timestamp::MIN);
    let channels = match context.store().chat_channels(inbox, earliest).await {
        Ok(channels) => channels,
        Err(error) => return warn!(bot = bot.key, "cannot look for missed chat messages: {error}"),
    };
    for channel in channels {
        let after = Some(channel.sent_at);
        match bot.connector.history(&channel.place, after, None, MAX_MISSED_MESSAGES).await {
            Ok(missed) => {
                for message in missed.into_iter().filter(|message| message.sent_at > channel.sent_at) {
                    receive_message(context, bot, message).await;
                }
            }
            Err(error) => {
                let channel = &channel.place.channel;
                warn!(bot = bot.key, channel, "cannot read the messages that were sent meanwhile: {error}");
            }
        }
    }
}

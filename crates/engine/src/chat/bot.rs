//! One bot on a chat platform: the lease that one node has for it, its connection, and the events that it receives.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use cowhand_chat::{ConnectionEnd, ConnectionState, Connector, EventReply, ReceivedEvent};
use cowhand_core::backoff::Backoff;
use cowhand_core::chat::{ChatEvent, ChatMessage, ChatPlatform};
use cowhand_core::id::AgentName;
use jiff::SignedDuration;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout_at};
use tracing::{info, warn};

use super::ChatContext;
use super::changes::{MessageChange, MessageChanges};
use super::command_answers::{CommandAnswers, post_command_answers};
use super::command_limits::CommandLimits;
use super::handling::MessagesInHandling;
use super::missed::{self, MissedMessages};
use super::{buttons, commands, intake};
use cowhand_store::ChatBotState;
use cowhand_system::fault;
use cowhand_system::panic;
use cowhand_system::wait;

/// Time for which the lease of a bot is valid without a renewal.
pub(super) const BOT_LEASE: SignedDuration = SignedDuration::from_secs(30);
/// Time without a renewal after which this node ends its connection. It is shorter than the lease, so that the
/// connection ends before another node can take the lease.
const CONNECTED_WITHOUT_RENEWAL: Duration = Duration::from_secs(20);
/// Time between two renewals, and between two tries to get the lease.
const BOT_RENEWAL: Duration = Duration::from_secs(8);
/// Time before a refused bot is tried again without a change of the config.
const REFUSED_RETRY_AFTER: Duration = Duration::from_mins(10);
/// Maximum number of events that wait in the queue of the connection.
const EVENT_QUEUE: usize = 16;
const STORE_BACKOFF: Backoff =
    Backoff::doubling(SignedDuration::from_millis(200), SignedDuration::from_secs(5));

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
    /// Signal that messages may be ready for handling.
    pub(super) received: Notify,
    /// Signal to try a refused bot again at once.
    pub(super) retry: Notify,
    pub(super) handling: MessagesInHandling,
    pub(super) missed: MissedMessages,
    pub(super) answers: CommandAnswers,
    pub(super) limits: CommandLimits,
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
        let (handling, missed) = (MessagesInHandling::default(), MissedMessages::default());
        let (answers, limits) = (CommandAnswers::default(), CommandLimits::default());
        Self { key, platform, connector, agents, account, received, retry, handling, missed, answers, limits }
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
        let asked_at = Instant::now();
        let wait = match context.hold(&bot).await {
            Ok(true) => connect(&context, &bot, asked_at, &mut stop).await,
            Ok(false) => renewal_pause(),
            Err(error) => {
                warn!(bot = bot.key, "cannot take the lease of a chat bot: {error}");
                renewal_pause()
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

/// Returns the time between two renewals.
fn renewal_pause() -> Duration {
    wait::length("chat_renewal", BOT_RENEWAL)
}

/// Waits, and returns whether a stop was requested.
async fn stopped_within(stop: &mut watch::Receiver<bool>, wait: Duration) -> bool {
    tokio::time::timeout(wait, stopped(stop)).await.is_ok()
}

/// Waits for the request to stop.
pub(super) async fn stopped(stop: &mut watch::Receiver<bool>) {
    // If the sender was dropped, nobody needs the bot any more.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Stays connected until a stop, the loss of the lease, or a refusal by the platform. Returns the wait before the next
/// try.
async fn connect(
    context: &Arc<ChatContext>,
    bot: &Arc<Bot>,
    mut renewed_at: Instant,
    stop: &mut watch::Receiver<bool>,
) -> Duration {
    bot.missed.begin_connection();
    bot.answers.clear();
    let (events_sender, events) = mpsc::channel(EVENT_QUEUE);
    let mut tasks = JoinSet::new();
    tasks.spawn(record_states(Arc::clone(context), Arc::clone(bot)));
    tasks.spawn(keep_handling(Arc::clone(context), Arc::clone(bot)));
    tasks.spawn(post_command_answers(Arc::clone(context), Arc::clone(bot)));
    tasks.spawn(receive(Arc::clone(context), Arc::clone(bot), events));
    let mut connection = std::pin::pin!(bot.connector.run(events_sender));
    let mut renew_at = tokio::time::interval(renewal_pause());
    renew_at.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            ended = &mut connection => return match ended {
                ConnectionEnd::Stopped => renewal_pause(),
                ConnectionEnd::Refused { reason } => {
                    warn!(bot = bot.key, "{} refuses the bot: {reason}", bot.platform);
                    context.record_state(bot, ChatBotState::Refused { reason }).await;
                    REFUSED_RETRY_AFTER
                }
            },
            () = stopped(stop) => return Duration::ZERO,
            _ = renew_at.tick() => if !renew(context, bot, &mut renewed_at).await {
                return renewal_pause();
            },
            () = sleep_until(renewed_at + CONNECTED_WITHOUT_RENEWAL) => {
                warn!(bot = bot.key, "disconnected, because the lease of the chat bot could not be renewed");
                return renewal_pause();
            }
            Some(ended) = tasks.join_next() => panic::log_panic("a task of a chat bot", ended),
        }
    }
}

/// Handles the stored messages until the connection ends.
async fn keep_handling(context: Arc<ChatContext>, bot: Arc<Bot>) {
    let handle = || intake::handle_messages(Arc::clone(&context), Arc::clone(&bot));
    panic::restart_on_panic("the task that handles chat messages", handle).await;
}

/// Renews the lease, and records up to which time all messages are received. Returns false if another node has the
/// lease.
async fn renew(context: &ChatContext, bot: &Bot, renewed_at: &mut Instant) -> bool {
    let (asked_at, now) = (Instant::now(), bot.connector.now());
    let no_answer = "the store does not answer";
    match timeout_at(*renewed_at + CONNECTED_WITHOUT_RENEWAL, context.hold(bot)).await {
        Ok(Ok(true)) => *renewed_at = asked_at,
        Ok(Ok(false)) => {
            warn!(bot = bot.key, "another node has taken over the chat bot");
            return false;
        }
        Ok(Err(error)) => warn!(bot = bot.key, "cannot renew the lease of a chat bot: {error}"),
        Err(_) => warn!(bot = bot.key, "cannot renew the lease of a chat bot: {no_answer}"),
    }
    if !ChatContext::is_connected(bot) {
        bot.missed.set_incomplete();
    }
    if let Some(inbox) = bot.inbox().filter(|_| bot.missed.is_complete()) {
        let recording = missed::record_received(context, bot, inbox, now);
        let reason = match timeout_at(*renewed_at + CONNECTED_WITHOUT_RENEWAL, recording).await {
            Ok(Ok(())) => return true,
            Ok(Err(error)) => error.to_string(),
            Err(_) => no_answer.to_owned(),
        };
        warn!(bot = bot.key, "cannot record the time up to which chat messages are received: {reason}");
    }
    true
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

/// Receives events one after the other, until the connection ends. Commands and buttons are answered in tasks of their
/// own, and edits and deletions are applied in such tasks.
async fn receive(context: Arc<ChatContext>, bot: Arc<Bot>, mut events: mpsc::Receiver<ReceivedEvent>) {
    let (mut answering, mut reading) = (JoinSet::new(), JoinSet::new());
    let mut changes = MessageChanges::default();
    while let Some(ReceivedEvent { event, reply }) = events.recv().await {
        while let Some(ended) = answering.try_join_next() {
            panic::log_panic("the answer to a command", ended);
        }
        while let Some(ended) = reading.try_join_next() {
            panic::log_panic("the task that reads missed chat messages", ended);
        }
        let stored = match event {
            ChatEvent::Connected(account) => {
                info!(bot = bot.key, "connected to {} as {}", bot.platform, account.name);
                bot.set_account(&account.id);
                context.record_inbox(&bot).await;
                reading.abort_all();
                if let Some(missed) = retried(|| missed::begin_reading(&context, &bot)).await {
                    let (context, bot) = (Arc::clone(&context), Arc::clone(&bot));
                    reading.spawn(async move { missed::read(&context, &bot, missed).await });
                }
                bot.received.notify_one();
                true
            }
            ChatEvent::Message(message) => {
                let _taken = bot.missed.take_message();
                receive_message(&context, &bot, message).await
            }
            ChatEvent::Edited(message) => {
                changes.begin(&context, &bot, MessageChange::Edited(message), reply).await;
                continue;
            }
            ChatEvent::Deleted { message } => {
                changes.begin(&context, &bot, MessageChange::Deleted { message }, reply).await;
                continue;
            }
            ChatEvent::Command(call) => {
                let (context, bot) = (Arc::clone(&context), Arc::clone(&bot));
                answering.spawn(async move {
                    let text = Box::pin(commands::answer_call(&context, &bot, &call)).await;
                    // An error means that the connection has ended.
                    let _ = reply.send(EventReply::Text(text));
                });
                continue;
            }
            ChatEvent::Suggest(request) => {
                let (context, bot) = (Arc::clone(&context), Arc::clone(&bot));
                answering.spawn(async move {
                    let suggestions = commands::suggest(&context, &bot, &request).await;
                    let _ = reply.send(EventReply::Suggestions(suggestions));
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
            // An error means that the connection has ended. If the message is delivered again, it is already known.
            let _ = reply.send(EventReply::Stored);
        }
    }
}

/// Stores a message that an agent may answer. Messages that no agent answers are confirmed without being stored.
pub(super) async fn receive_message(context: &ChatContext, bot: &Bot, message: ChatMessage) -> bool {
    let Some(inbox) = bot.inbox() else { return false };
    if intake::is_ignored(context, bot, &message) {
        return true;
    }
    let now = context.now();
    retried(|| context.store().receive_chat_message(inbox.clone(), message.clone(), now)).await;
    bot.missed.note_message(message.sent_at);
    fault::point("chat_received");
    bot.received.notify_one();
    true
}

/// Repeats a call until it succeeds, so that no event is lost while the store is not available. The connection receives
/// no further event meanwhile.
pub(super) async fn retried<T, E: fmt::Display, F: Future<Output = Result<T, E>>>(
    mut call: impl FnMut() -> F,
) -> T {
    let mut failures = 0;
    loop {
        match call().await {
            Ok(result) => return result,
            Err(error) => {
                failures += 1;
                if failures == 1 {
                    warn!("cannot store an event of a chat; it is tried again: {error}");
                }
                tokio::time::sleep(STORE_BACKOFF.wait_after(failures)).await;
            }
        }
    }
}

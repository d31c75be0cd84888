//! Handles stored messages: each becomes a firing, a command, an answer to an ask, or a refusal.
//!
//! The messages of a channel, with those of its threads, are handled in their order. Every step can be repeated.
//! Therefore a message whose handling was interrupted is handled again from the first step.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use cowhand_core::backoff::Backoff;
use cowhand_core::chat::access::{ChatReception, call_reception, reception};
use cowhand_core::chat::command::parse_message;
use cowhand_core::chat::settings::PlatformChat;
use cowhand_core::chat::{ChatMessage, ChatPlace, ChatUser, texts};
use cowhand_core::delivery::Message;
use cowhand_core::id::AgentName;
use cowhand_core::roster::Agent;
use jiff::SignedDuration;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::{info, warn};

use super::accepted::{AcceptedMessage, delivery_of};
use super::attachments::still_attached;
use super::bot::Bot;
use super::changes::MessageChange;
use super::context::ChatContext;
use super::conversation::Conversation;
use super::posts::ChatReply;
use super::refusal::Refusal;
use super::{asks, commands};
use crate::fleet::{DeliveryEdit, FleetError};
use cowhand_store::{ChatAnswer, ReceivedChatMessage, StoreError};
use cowhand_system::fault;
use cowhand_system::panic::caught;

/// Maximum number of channels whose messages are handled at the same time.
const CHANNELS_TOGETHER: usize = 64;
/// Time after which messages are looked for without a signal.
const MESSAGE_CHECK_EVERY: Duration = Duration::from_secs(30);
const HANDLE_BACKOFF: Backoff = Backoff::doubling(SignedDuration::from_secs(1), SignedDuration::from_mins(1));

/// Reason why a message could not be handled now. It is tried again.
#[derive(Debug, thiserror::Error)]
pub(super) enum HandleError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Fleet(FleetError),
}

/// The agent that answers a message, with its rules.
#[derive(Debug)]
pub(super) struct Addressee {
    pub(super) agent: Agent,
    pub(super) chat: PlatformChat,
    pub(super) conversation: Conversation,
    /// Number of earlier messages that the prompt contains.
    pub(super) context_messages: u32,
}

/// The agents of a bot that accept a message or a command, in the order of the config.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    pub(super) accepted: Vec<Addressee>,
    /// The first agent that refuses its sender.
    pub(super) refused: Option<(Agent, Refusal)>,
}

/// Result of the handling of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Handling {
    Ended,
    /// The message was a command that has acted. Its answer waits for its post.
    AnswerWaits,
}

/// Result of the rules of the bot's agents for a message.
enum Routed {
    Ignored,
    Refused { agent: Agent, refusal: Refusal },
    To(Box<Addressee>),
}

/// Returns whether no agent of the bot answers the message, even if an agent has answered in its thread.
pub(super) fn is_ignored(context: &ChatContext, bot: &Bot, message: &ChatMessage) -> bool {
    let is_ignored =
        |(_, chat): &(Agent, PlatformChat)| matches!(reception(chat, message, true), ChatReception::Ignored);
    message.author.is_self || context.agents_of(bot).iter().all(is_ignored)
}

/// Handles the stored messages of a bot, and waits for more. The channels do not wait for each other.
pub(super) async fn handle_messages(context: Arc<ChatContext>, bot: Arc<Bot>) {
    let (mut handling, mut busy) = (JoinSet::new(), HashSet::<String>::new());
    let mut failures = 0;
    loop {
        fault::point("chat_handling");
        let received = bot.received.notified();
        let wait = match open_channels(&context, &bot).await {
            Ok(channels) => {
                failures = 0;
                for channel in channels {
                    if busy.len() < CHANNELS_TOGETHER && busy.insert(channel.clone()) {
                        handling.spawn(handle_channel(Arc::clone(&context), Arc::clone(&bot), channel));
                    }
                }
                MESSAGE_CHECK_EVERY
            }
            Err(error) => {
                failures += 1;
                if failures == 1 {
                    warn!(bot = bot.key, "cannot read the stored chat messages; it is tried again: {error}");
                }
                HANDLE_BACKOFF.wait_after(failures)
            }
        };
        tokio::select! {
            () = received => {}
            () = sleep(wait) => {}
            Some(ended) = handling.join_next() => if let Ok(channel) = ended {
                busy.remove(&channel);
            }
        }
        while let Some(ended) = handling.try_join_next() {
            if let Ok(channel) = ended {
                busy.remove(&channel);
            }
        }
    }
}

/// Returns the channels whose messages can be handled now.
async fn open_channels(context: &ChatContext, bot: &Bot) -> Result<Vec<String>, StoreError> {
    let Some(inbox) = bot.inbox() else { return Ok(Vec::new()) };
    let mut channels = context.store().open_chat_channels(inbox.clone()).await?;
    channels.retain(|channel| !bot.missed.is_reading(channel));
    let mut open = Vec::new();
    for channel in channels {
        if bot.answers.count(&channel) == 0 || next_message(context, bot, &inbox, &channel).await?.is_some() {
            open.push(channel);
        }
    }
    Ok(open)
}

/// Returns the id of the message of a channel that is handled next: the message that was sent first, among those that are
/// not handled and whose answer does not wait for its post.
async fn next_message(
    context: &ChatContext,
    bot: &Bot,
    inbox: &str,
    channel: &str,
) -> Result<Option<String>, StoreError> {
    loop {
        let waiting = bot.answers.count(channel);
        let limit = u32::try_from(waiting + 1).unwrap_or(u32::MAX);
        let open = context.store().open_chat_messages(inbox.to_owned(), channel.to_owned(), limit).await?;
        let is_all = open.len() <= waiting;
        if let Some(id) = open.into_iter().find(|id| !bot.answers.contains(channel, id)) {
            return Ok(Some(id));
        }
        // Answers may have been added meanwhile.
        if is_all || bot.answers.count(channel) <= waiting {
            return Ok(None);
        }
    }
}

/// Handles the messages of a channel until none is left. Returns the channel.
async fn handle_channel(context: Arc<ChatContext>, bot: Arc<Bot>, channel: String) -> String {
    let mut failures = 0;
    loop {
        let handled = match caught(handle_next(&context, &bot, &channel)).await {
            Ok(Ok(handled)) => Ok(handled),
            Ok(Err(error)) => Err(error.to_string()),
            Err(panicked) => Err(format!("the task {panicked}")),
        };
        match handled {
            Ok(Handled::Message) => failures = 0,
            Ok(Handled::Nothing) => return channel,
            // The next renewal of the lease ends this connection.
            Ok(Handled::ByOtherNode) => {
                sleep(MESSAGE_CHECK_EVERY).await;
                return channel;
            }
            Err(error) => {
                failures += 1;
                if failures == 1 {
                    warn!(
                        bot = bot.key,
                        channel, "cannot handle a chat message now; it is tried again: {error}"
                    );
                }
                sleep(HANDLE_BACKOFF.wait_after(failures)).await;
            }
        }
    }
}

/// Result of the handling of the next message of a channel.
enum Handled {
    Message,
    /// There is no message that can be handled.
    Nothing,
    /// Another node has taken over the bot.
    ByOtherNode,
}

/// Handles the next message of a channel.
async fn handle_next(context: &ChatContext, bot: &Bot, channel: &str) -> Result<Handled, HandleError> {
    let Some(inbox) = bot.inbox().filter(|_| !bot.missed.is_reading(channel)) else {
        return Ok(Handled::Nothing);
    };
    let store = context.store();
    let Some(id) = next_message(context, bot, &inbox, channel).await? else {
        return Ok(Handled::Nothing);
    };
    // An edit or a deletion first changes the stored message, and then waits until this handling has ended. So the
    // message is read after the handling has begun.
    let _turn = bot.handling.begin(&id);
    let Some(received) = store.open_chat_message(inbox.clone(), id.clone()).await? else {
        return Ok(Handled::Message);
    };
    if !context.is_holder(bot).await? {
        return Ok(Handled::ByOtherNode);
    }
    match Box::pin(handle(context, bot, &received)).await? {
        Handling::Ended => drop(store.chat_message_handled(inbox, id).await?),
        // The message is handled when the answer was posted.
        Handling::AnswerWaits => {}
    }
    fault::point("chat_handled");
    Ok(Handled::Message)
}

async fn handle(
    context: &ChatContext,
    bot: &Bot,
    received: &ReceivedChatMessage,
) -> Result<Handling, HandleError> {
    let message = &received.message;
    let addressee = match route(context, bot, message).await? {
        Routed::Ignored => return Ok(Handling::Ended),
        Routed::Refused { agent, refusal } => {
            refusal.post(context, bot, &agent, received).await?;
            return Ok(Handling::Ended);
        }
        Routed::To(addressee) => addressee,
    };
    // The text of a bot can come from anybody, so it is never a command.
    if let Some(command) = parse_message(&message.text, bot.platform).filter(|_| !message.author.is_bot) {
        return Box::pin(commands::answer_message(context, bot, received, command)).await;
    }
    if !asks::reply::answer_by_reply(context, bot, received).await? {
        let text = without_address(&addressee.agent.name, &message.text).to_owned();
        let message = ChatMessage { text, ..message.clone() };
        let received = &ReceivedChatMessage { message, ..received.clone() };
        AcceptedMessage { context, bot, addressee: &addressee, received }.fire().await?;
    }
    Ok(Handling::Ended)
}

/// Chooses the agent that answers: the agent that the text names, else the agent that has answered in the thread, else
/// the first agent of the config whose rules accept the message.
async fn route(context: &ChatContext, bot: &Bot, message: &ChatMessage) -> Result<Routed, StoreError> {
    let candidates = Candidates::of_message(context, bot, message).await?;
    let index = addressed_by_name(&candidates.accepted, &message.text)
        .or_else(|| candidates.of_thread(&message.place))
        .unwrap_or(0);
    let Candidates { mut accepted, refused } = candidates;
    if index < accepted.len() {
        return Ok(Routed::To(Box::new(accepted.swap_remove(index))));
    }
    Ok(refused.map_or(Routed::Ignored, |(agent, refusal)| Routed::Refused { agent, refusal }))
}

impl Candidates {
    /// Returns the agents to which a message is addressed.
    pub(super) async fn of_message(
        context: &ChatContext,
        bot: &Bot,
        message: &ChatMessage,
    ) -> Result<Self, StoreError> {
        Self::by(context, bot, &message.place, |chat, is_own| reception(chat, message, is_own)).await
    }

    /// Returns the agents with which a person may talk in a place, if the person addresses the bot.
    pub(super) async fn of_call(
        context: &ChatContext,
        bot: &Bot,
        place: &ChatPlace,
        user: &ChatUser,
    ) -> Result<Self, StoreError> {
        Self::by(context, bot, place, |chat, _| call_reception(chat, place, user)).await
    }

    async fn by(
        context: &ChatContext,
        bot: &Bot,
        place: &ChatPlace,
        reception: impl Fn(&PlatformChat, bool) -> ChatReception,
    ) -> Result<Self, StoreError> {
        let mut candidates = Self::default();
        for (agent, chat) in context.agents_of(bot) {
            let conversation = Conversation::of(context.store(), &agent.name, bot.platform, place).await?;
            let is_own_thread = place.thread.is_some() && conversation.is_begun;
            match reception(&chat, is_own_thread) {
                ChatReception::Ignored => {}
                ChatReception::Refused { reason } => {
                    candidates.refused.get_or_insert((agent, Refusal::Access(reason)));
                }
                ChatReception::Accepted { context_messages } => {
                    candidates.accepted.push(Addressee { agent, chat, conversation, context_messages });
                }
            }
        }
        Ok(candidates)
    }

    /// Returns the position of the agent that has answered in the thread of this place.
    pub(super) fn of_thread(&self, place: &ChatPlace) -> Option<usize> {
        self.accepted.iter().position(|one| one.conversation.is_begun && place.thread.is_some())
    }
}

/// Returns the agent whose name begins the text, followed by a colon.
fn addressed_by_name(accepted: &[Addressee], text: &str) -> Option<usize> {
    let (name, _) = text.trim_start().split_once(':')?;
    accepted.iter().position(|one| one.agent.name.as_str().eq_ignore_ascii_case(name.trim()))
}

/// Returns the text without the name of the agent and the colon with which it may begin. The name stays if no other text
/// follows.
fn without_address<'a>(agent: &AgentName, text: &'a str) -> &'a str {
    let addressed = text.trim_start().split_once(':');
    let is_agent = |(name, rest): &(&str, &str)| {
        agent.as_str().eq_ignore_ascii_case(name.trim()) && !rest.trim().is_empty()
    };
    addressed.filter(is_agent).map_or(text, |(_, rest)| rest.trim_start())
}

/// Stores a change of a message that is not handled yet.
pub(super) async fn store_change(
    context: &ChatContext,
    bot: &Bot,
    change: &MessageChange,
) -> Result<bool, StoreError> {
    let Some(inbox) = bot.inbox() else { return Ok(false) };
    match change {
        MessageChange::Edited(message) => context.store().edit_chat_message(inbox, message.clone()).await,
        MessageChange::Deleted { message } => {
            context.store().chat_message_handled(inbox, message.clone()).await
        }
    }
}

/// Replaces the text of a message that was edited before its job started.
pub(super) async fn apply_edit(
    context: &ChatContext,
    bot: &Bot,
    message: &ChatMessage,
) -> Result<(), HandleError> {
    bot.handling.until_ended(&message.id).await;
    if parse_message(&message.text, bot.platform).is_some() {
        // A command acts only when it is sent, so an edit to a command changes nothing.
        return Ok(());
    }
    let is_voice = message.attachments.iter().any(|file| file.is_voice);
    for answer in context.store().chat_answers_of_message(message.id.clone()).await? {
        let mut origin = answer.origin.clone();
        let attached = std::mem::take(&mut origin.details.attachments);
        origin.details.attachments = still_attached(attached, &message.attachments);
        if !is_voice {
            without_address(&answer.agent, &message.text).clone_into(&mut origin.text);
        }
        let delivery = Message { text: origin.text.clone(), ..delivery_of(message, origin.details.clone()) };
        let edited = context.fleet.edit_delivery(answer.schedule, &answer.key, delivery);
        match unless_refused(edited.await)? {
            Some(DeliveryEdit::Replaced) => {
                context.store().edit_chat_answer(answer.schedule, answer.key, origin).await?;
                info!(agent = %answer.agent, "the text of a queued chat message was replaced, because it was edited");
            }
            Some(DeliveryEdit::Unwanted) => withdraw(context, bot, &answer).await?,
            Some(DeliveryEdit::TooLate) | None => {}
        }
    }
    Ok(())
}

/// Cancels the job of a message that was edited so that its schedule does not take it any more, and tells its author.
async fn withdraw(context: &ChatContext, bot: &Bot, answer: &ChatAnswer) -> Result<(), HandleError> {
    if unless_refused(context.cancel_waiting(answer).await)? != Some(true) {
        return Ok(());
    }
    info!(agent = %answer.agent, "cancelled a queued job, because its schedule does not take the edited chat message");
    let roster = context.fleet.roster();
    let Some((agent, schedule)) = roster.schedule(answer.schedule) else { return Ok(()) };
    let reply = ChatReply {
        place: answer.origin.place.clone(),
        reply_to: Some(answer.origin.message.clone()),
        key: &[&answer.schedule.to_string(), answer.key.as_str(), "edited"],
        first_tried_at: answer.created_at,
        text: texts::edit_unwanted(&agent.name, schedule.name.as_str(), bot.platform),
        buttons: Vec::new(),
    };
    context.reply(bot, reply).await;
    Ok(())
}

/// Cancels the job of a message that was deleted before the job started.
pub(super) async fn apply_deletion(
    context: &ChatContext,
    bot: &Bot,
    message: &str,
) -> Result<(), HandleError> {
    bot.handling.until_ended(message).await;
    for answer in context.store().chat_answers_of_message(message.to_owned()).await? {
        if unless_refused(context.cancel_waiting(&answer).await)? == Some(true) {
            info!(agent = %answer.agent, "cancelled a queued job, because its chat message was deleted");
        }
    }
    Ok(())
}

/// Returns none if the fleet refuses a change for good. Another error may be gone at the next try.
fn unless_refused<T>(changed: Result<T, FleetError>) -> Result<Option<T>, HandleError> {
    match changed {
        Ok(changed) => Ok(Some(changed)),
        Err(error @ (FleetError::Stopping | FleetError::Unready(_) | FleetError::Store(_))) => {
            Err(HandleError::Fleet(error))
        }
        Err(error) => {
            warn!("a queued chat message was not changed: {error}");
            Ok(None)
        }
    }
}

//! Handles stored messages: each becomes a firing, a command, an answer to an ask, or a refusal.
//!
//! The messages of a channel are handled in their order. Every step can be repeated, so a message whose handling was
//! interrupted is handled again from its beginning.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cowhand_core::backoff::Backoff;
use cowhand_core::chat::ChatMessage;
use cowhand_core::chat::access::{ChatReception, reception};
use cowhand_core::chat::command::parse_message;
use cowhand_core::chat::settings::PlatformChat;
use cowhand_core::delivery::Message;
use cowhand_core::roster::Agent;
use futures_util::{StreamExt, stream};
use jiff::SignedDuration;
use tracing::{info, warn};

use super::accepted::{AcceptedMessage, delivery_of};
use super::attachments::still_attached;
use super::bot::Bot;
use super::context::ChatContext;
use super::conversation::Conversation;
use super::refusal::Refusal;
use super::{asks, commands};
use crate::fleet::FleetError;
use cowhand_store::{ReceivedChatMessage, StoreError};

/// Number of messages that are read from the store together.
const MESSAGE_BATCH: u32 = 500;
/// Number of channels whose messages are handled at the same time.
const CHANNELS_TOGETHER: usize = 8;
/// Time after which messages are looked for without a signal.
const MESSAGE_CHECK_EVERY: Duration = Duration::from_secs(30);
const HANDLE_BACKOFF: Backoff = Backoff::doubling(SignedDuration::from_secs(1), SignedDuration::from_mins(1));

/// Why a message could not be handled now. It is tried again.
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

/// What the rules of the bot's agents say about a message.
enum Routed {
    Ignored,
    Refused { agent: Agent, refusal: Refusal },
    To(Box<Addressee>),
}

/// Returns whether no agent of the bot answers the message, whatever conversation it belongs to.
pub(super) fn is_ignored(context: &ChatContext, bot: &Bot, message: &ChatMessage) -> bool {
    let is_ignored =
        |(_, chat): &(Agent, PlatformChat)| matches!(reception(chat, message, true), ChatReception::Ignored);
    message.author.is_self || context.agents_of(bot).iter().all(is_ignored)
}

/// Handles the stored messages of a bot, and waits for more.
pub(super) async fn handle_messages(context: Arc<ChatContext>, bot: Arc<Bot>) {
    let mut failures = 0;
    loop {
        let received = bot.received.notified();
        match handle_stored(&context, &bot).await {
            Ok(()) => {
                failures = 0;
                tokio::select! {
                    () = received => {}
                    () = tokio::time::sleep(MESSAGE_CHECK_EVERY) => {}
                }
            }
            Err(error) => {
                failures += 1;
                if failures == 1 {
                    warn!(bot = bot.key, "cannot handle a chat message now; it is tried again: {error}");
                }
                tokio::time::sleep(HANDLE_BACKOFF.pause_after(failures)).await;
            }
        }
    }
}

async fn handle_stored(context: &ChatContext, bot: &Bot) -> Result<(), HandleError> {
    let Some(inbox) = bot.inbox() else { return Ok(()) };
    loop {
        let received = context.store().received_chat_messages(inbox.clone(), MESSAGE_BATCH).await?;
        if received.is_empty() {
            return Ok(());
        }
        let mut channels: BTreeMap<String, Vec<ReceivedChatMessage>> = BTreeMap::new();
        for message in received {
            channels.entry(message.channel.clone()).or_default().push(message);
        }
        let handled = stream::iter(channels.into_values())
            .map(|messages| handle_channel(context, bot, &inbox, messages))
            .buffer_unordered(CHANNELS_TOGETHER);
        let results: Vec<_> = handled.collect().await;
        // An error in one channel does not stop the others.
        results.into_iter().collect::<Result<(), HandleError>>()?;
    }
}

async fn handle_channel(
    context: &ChatContext,
    bot: &Bot,
    inbox: &str,
    messages: Vec<ReceivedChatMessage>,
) -> Result<(), HandleError> {
    for received in messages {
        handle(context, bot, &received).await?;
        context.store().chat_message_handled(inbox.to_owned(), received.id).await?;
    }
    Ok(())
}

async fn handle(context: &ChatContext, bot: &Bot, received: &ReceivedChatMessage) -> Result<(), HandleError> {
    let message = &received.message;
    let addressee = match route(context, bot, message).await? {
        Routed::Ignored => return Ok(()),
        Routed::Refused { agent, refusal } => {
            return Ok(refusal.post(context, bot, &agent, received).await?);
        }
        Routed::To(addressee) => addressee,
    };
    if let Some(command) = parse_message(&message.text) {
        commands::answer_message(context, bot, &addressee, received, command).await;
        return Ok(());
    }
    if asks::reply::answer_by_reply(context, bot, received).await? {
        return Ok(());
    }
    AcceptedMessage { context, bot, addressee: &addressee, received }.fire().await
}

/// Chooses the agent that answers: the agent that the text names, else the first of the config whose rules accept the
/// message.
async fn route(context: &ChatContext, bot: &Bot, message: &ChatMessage) -> Result<Routed, StoreError> {
    let (mut accepted, mut refused) = (Vec::new(), None);
    for (agent, chat) in context.agents_of(bot) {
        let conversation =
            Conversation::of(context.store(), &agent.name, bot.platform, &message.place).await?;
        let is_own_thread = message.place.thread.is_some() && conversation.is_begun;
        match reception(&chat, message, is_own_thread) {
            ChatReception::Ignored => {}
            ChatReception::Refused { reason } => {
                refused.get_or_insert((agent, Refusal::Access(reason)));
            }
            ChatReception::Accepted { context_messages } => {
                accepted.push(Addressee { agent, chat, conversation, context_messages });
            }
        }
    }
    // Within a thread, the agent that has answered there continues.
    let index = addressed_by_name(&accepted, &message.text)
        .or_else(|| {
            accepted.iter().position(|one| one.conversation.is_begun && message.place.thread.is_some())
        })
        .unwrap_or(0);
    if index < accepted.len() {
        return Ok(Routed::To(Box::new(accepted.swap_remove(index))));
    }
    Ok(refused.map_or(Routed::Ignored, |(agent, refusal)| Routed::Refused { agent, refusal }))
}

/// Returns the agent whose name begins the text, followed by a colon.
fn addressed_by_name(accepted: &[Addressee], text: &str) -> Option<usize> {
    let (name, _) = text.trim_start().split_once(':')?;
    accepted.iter().position(|one| one.agent.name.as_str().eq_ignore_ascii_case(name.trim()))
}

/// Replaces the text of a message that was edited before its job started.
pub(super) async fn edited(
    context: &ChatContext,
    bot: &Bot,
    message: &ChatMessage,
) -> Result<(), HandleError> {
    let Some(inbox) = bot.inbox() else { return Ok(()) };
    if context.store().edit_chat_message(inbox, message.clone()).await? {
        return Ok(());
    }
    let is_voice = message.attachments.iter().any(|file| file.is_voice);
    for answer in context.store().chat_answers_of_message(message.id.clone()).await? {
        let mut origin = answer.origin;
        let attached = std::mem::take(&mut origin.details.attachments);
        origin.details.attachments = still_attached(attached, &message.attachments);
        if !is_voice {
            origin.text.clone_from(&message.text);
        }
        let delivery = Message { text: origin.text.clone(), ..delivery_of(message, origin.details.clone()) };
        let edited = context.fleet.edit_delivery(answer.schedule, &answer.key, delivery);
        if edited.await.map_err(HandleError::Fleet)? {
            context.store().edit_chat_answer(answer.schedule, answer.key, origin).await?;
            info!(agent = %answer.agent, "the text of a queued chat message was replaced, because it was edited");
        }
    }
    Ok(())
}

/// Cancels the job of a message that was deleted before the job started.
pub(super) async fn deleted(context: &ChatContext, bot: &Bot, message: &str) -> Result<(), HandleError> {
    let Some(inbox) = bot.inbox() else { return Ok(()) };
    if context.store().chat_message_handled(inbox, message.to_owned()).await? {
        return Ok(());
    }
    for answer in context.store().chat_answers_of_message(message.to_owned()).await? {
        if context.cancel_waiting(&answer).await.map_err(HandleError::Fleet)? {
            info!(agent = %answer.agent, "cancelled a queued job, because its chat message was deleted");
        }
    }
    Ok(())
}

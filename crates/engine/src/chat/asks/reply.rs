//! Messages of people that answer an ask.

use cowhand_core::ask::{Ask, AskAnswer, AskState};
use cowhand_core::chat::access::is_operator;
use cowhand_core::chat::reply::answer_of_reply;
use cowhand_core::chat::texts::{NoAnswerReason, no_answer};
use cowhand_core::chat::{ChatMessage, ChatUser};
use cowhand_core::id::AgentName;

use super::super::bot::Bot;
use super::super::context::ChatContext;
use super::super::conversation::answer_place;
use super::super::intake::HandleError;
use super::super::posts::ChatReply;
use cowhand_store::{ReceivedChatMessage, StoreError};
use cowhand_system::fault;

/// Meaning of a message for the open asks of its conversation.
enum ReplyMeaning {
    /// The message is not meant for an ask.
    Other,
    NoAnswer(Ask, NoAnswerReason),
    Answer(Ask, AskAnswer),
}

/// Answers an open ask of the conversation, if the message is an answer. Returns false if it is not; the message then
/// becomes a job. If the message may have been meant as an answer, its author is told why it is none.
pub(in crate::chat) async fn answer_by_reply(
    context: &ChatContext,
    bot: &Bot,
    received: &ReceivedChatMessage,
) -> Result<bool, HandleError> {
    let meaning = match recorded_answer(context, bot, &received.message).await? {
        Some(meaning) => meaning,
        None => meaning(context, bot, &received.message).await?,
    };
    match meaning {
        ReplyMeaning::Other => Ok(false),
        ReplyMeaning::NoAnswer(ask, reason) => {
            tell(context, bot, received, no_answer(&ask, reason, bot.platform)).await;
            Ok(false)
        }
        ReplyMeaning::Answer(ask, answer) => {
            let (store, message) = (context.store(), &received.message);
            store.save_ask_reply(ask.id.clone(), message.id.clone()).await?;
            fault::point("chat_ask_reply_recorded");
            let answered = context.answer_ask(bot.platform, &message.author, &ask.id, answer).await;
            let answered = answered.map_err(HandleError::Fleet)?;
            // If the answer counts, the post of the ask shows it.
            if !answered.counts {
                tell(context, bot, received, answered.text).await;
            }
            Ok(true)
        }
    }
}

/// Returns the answer of a message that was recorded as an answer before a crash, even if the ask is closed now.
async fn recorded_answer(
    context: &ChatContext,
    bot: &Bot,
    message: &ChatMessage,
) -> Result<Option<ReplyMeaning>, StoreError> {
    let recorded = context.store().chat_asks_of_reply(message.id.clone()).await?;
    let Some(known) = recorded.iter().find(|known| context.is_bot_of(bot, &known.posted.agent)) else {
        return Ok(None);
    };
    let Some(ask) = context.shown_ask(&known.id).await? else { return Ok(None) };
    let answer = answer_of_reply(&ask.what, text_for(message, &ask.agent));
    Ok(answer.map(|answer| ReplyMeaning::Answer(ask, answer)))
}

/// Decides what a message means. It answers an ask if exactly one ask of its conversation is meant, the author may
/// answer, and the text is clear.
async fn meaning(
    context: &ChatContext,
    bot: &Bot,
    message: &ChatMessage,
) -> Result<ReplyMeaning, StoreError> {
    let mut asks = open_asks(context, bot, message).await?;
    if let Some(named) = named_agent(context, bot, &message.text) {
        asks.retain(|(ask, _)| ask.agent == named);
    }
    let Some((first, _)) = asks.first().cloned() else { return Ok(ReplyMeaning::Other) };
    // In a channel, people also write about other things, so a message there has to be a reply.
    let mut is_addressed = message.place.thread.is_some() || message.place.is_direct;
    if let Some(replied) = &message.reply_to {
        asks.retain(|(_, messages)| messages.contains(replied));
        is_addressed = !asks.is_empty();
    }
    if !is_addressed {
        let is_operator = may_answer(context, &first, bot, &message.author);
        let no_reply = || ReplyMeaning::NoAnswer(first, NoAnswerReason::NoReply);
        return Ok(if is_operator { no_reply() } else { ReplyMeaning::Other });
    }
    asks.retain(|(ask, _)| may_answer(context, ask, bot, &message.author));
    let reason = match &asks[..] {
        [] => NoAnswerReason::NotOperator,
        [_, _, ..] => NoAnswerReason::Several,
        [_] if !message.attachments.is_empty() => NoAnswerReason::HasFiles,
        [(ask, _)] => match answer_of_reply(&ask.what, text_for(message, &ask.agent)) {
            Some(answer) => return Ok(ReplyMeaning::Answer(ask.clone(), answer)),
            None => NoAnswerReason::Unclear,
        },
    };
    Ok(ReplyMeaning::NoAnswer(first, reason))
}

/// Returns the open asks in the conversation of a message, with the ids of their posts.
async fn open_asks(
    context: &ChatContext,
    bot: &Bot,
    message: &ChatMessage,
) -> Result<Vec<(Ask, Vec<String>)>, StoreError> {
    let mut asks = Vec::new();
    for known in context.store().open_chat_asks().await? {
        let posted = known.posted;
        if !posted.is_in(bot.platform, &message.place) || !context.is_bot_of(bot, &posted.agent) {
            continue;
        }
        if let Some(ask) = context.shown_ask(&known.id).await?.filter(|ask| ask.state == AskState::Open) {
            asks.push((ask, posted.messages));
        }
    }
    Ok(asks)
}

fn may_answer(context: &ChatContext, ask: &Ask, bot: &Bot, user: &ChatUser) -> bool {
    context.chat_of(&ask.agent, bot.platform).is_some_and(|chat| is_operator(&chat.access, user))
}

/// Returns the agent whose name begins the text, followed by a colon.
fn named_agent(context: &ChatContext, bot: &Bot, text: &str) -> Option<AgentName> {
    let (name, _) = text.split_once(':')?;
    bot.agents().into_iter().find(|agent| {
        agent.as_str().eq_ignore_ascii_case(name.trim()) && context.chat_of(agent, bot.platform).is_some()
    })
}

/// Returns the text without the name of the agent.
fn text_for<'a>(message: &'a ChatMessage, agent: &AgentName) -> &'a str {
    match message.text.split_once(':') {
        Some((name, rest)) if name.trim().eq_ignore_ascii_case(agent.as_str()) => rest,
        _ => &message.text,
    }
}

async fn tell(context: &ChatContext, bot: &Bot, received: &ReceivedChatMessage, text: String) {
    let message = &received.message;
    let reply = ChatReply {
        place: answer_place(message),
        reply_to: Some(message.id.clone()),
        key: &[&message.id, "ask"],
        first_tried_at: received.received_at,
        text,
        buttons: Vec::new(),
    };
    context.reply(bot, reply).await;
}

//! Messages of people that answer an ask.

use cowhand_core::ask::{Ask, AskAnswer, AskState, AskSubject};
use cowhand_core::chat::ChatMessage;
use cowhand_core::chat::access::is_operator;
use cowhand_core::chat::posting::PostedAsk;
use cowhand_core::chat::reply::{answer_of_reply, verdict_of_reply};
use cowhand_core::chat::texts::{NoAnswerReason, ask_closed_before, no_answer};
use cowhand_core::id::AgentName;

use super::super::bot::Bot;
use super::super::context::ChatContext;
use super::super::conversation::answer_place;
use super::super::intake::HandleError;
use super::super::posts::ChatReply;
use cowhand_store::{ReceivedChatMessage, StoreError};
use cowhand_system::fault;

/// Number of asks among which those are looked for that were closed meanwhile.
const LAST_ASKS: u32 = 100;

/// What a message means for the asks of its conversation.
enum ReplyMeaning {
    /// The message is not meant for an ask.
    Other,
    NoAnswer {
        ask: Ask,
        reason: NoAnswerReason,
        becomes_job: bool,
    },
    /// It would answer an ask that is closed now.
    TooLate(Ask),
    Answer(Ask, AskAnswer),
}

/// An open ask in the conversation of a message.
struct OpenAsk {
    ask: Ask,
    posted: PostedAsk,
}

/// Takes a message as the answer to an open ask of its conversation. Returns false if it becomes a job. The author is
/// told why the message answers no ask.
pub(in crate::chat) async fn answer_by_reply(
    context: &ChatContext,
    bot: &Bot,
    received: &ReceivedChatMessage,
) -> Result<bool, HandleError> {
    let meaning = match recorded_answer(context, bot, &received.message).await? {
        Some(meaning) => meaning,
        None => Reply { context, bot, message: &received.message }.meaning().await?,
    };
    match meaning {
        ReplyMeaning::Other => Ok(false),
        ReplyMeaning::NoAnswer { ask, reason, becomes_job } => {
            tell(context, bot, received, no_answer(&ask, reason, becomes_job, bot.platform)).await;
            Ok(!becomes_job)
        }
        ReplyMeaning::TooLate(ask) => {
            tell(context, bot, received, ask_closed_before(&ask, bot.platform)).await;
            Ok(true)
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

/// A message that may answer an ask.
#[derive(Clone, Copy)]
struct Reply<'a> {
    context: &'a ChatContext,
    bot: &'a Bot,
    message: &'a ChatMessage,
}

impl Reply<'_> {
    /// Decides what the message means. It answers an ask if exactly one ask of its conversation is meant, the author may
    /// answer, the whole ask was posted before the message was written, and the text is clear.
    async fn meaning(self) -> Result<ReplyMeaning, StoreError> {
        let message = self.message;
        let mut asks = self.open_asks().await?;
        let named = named_agent(self.context, self.bot, &message.text);
        if let Some(named) = &named {
            asks.retain(|one| one.ask.agent == *named);
        }
        let first = asks.first().map(|one| one.ask.clone());
        // In a channel, people also write about other things.
        let mut is_addressed = message.place.thread.is_some() || message.place.is_direct;
        if let Some(replied) = &message.reply_to {
            asks.retain(|one| one.posted.messages.contains(replied));
            is_addressed = !asks.is_empty();
        }
        match first {
            None if is_addressed => self.late_meaning(named.as_ref()).await,
            None => Ok(ReplyMeaning::Other),
            Some(ask) if is_addressed => self.meaning_for(ask, asks, named.as_ref()).await,
            Some(ask) if self.may_answer(&ask) => {
                Ok(ReplyMeaning::NoAnswer { ask, reason: NoAnswerReason::NoReply, becomes_job: true })
            }
            Some(_) => Ok(ReplyMeaning::Other),
        }
    }

    /// Decides about a message that is addressed to one of these open asks.
    async fn meaning_for(
        self,
        first: Ask,
        mut asks: Vec<OpenAsk>,
        named: Option<&AgentName>,
    ) -> Result<ReplyMeaning, StoreError> {
        let is_shown = asks.iter().any(|one| one.posted.is_older_than(&self.message.id));
        asks.retain(|one| self.may_answer(&one.ask));
        let no_answer = |ask, reason, becomes_job| Ok(ReplyMeaning::NoAnswer { ask, reason, becomes_job });
        let is_verdict = self.is_verdict(named);
        let OpenAsk { ask, posted } = match (asks.pop(), asks.is_empty()) {
            (None, _) if is_shown => return no_answer(first, NoAnswerReason::NotOperator, true),
            (None, _) => return Ok(ReplyMeaning::Other),
            (Some(_), false) => return no_answer(first, NoAnswerReason::Several, !is_verdict),
            (Some(only), true) => only,
        };
        let recorded = if posted.is_complete { None } else { self.context.recorded_ask(&ask.id).await? };
        let posted = recorded.map_or(posted, |known| known.posted);
        if !posted.is_older_than(&self.message.id) {
            return Ok(match self.late_meaning(named).await? {
                ReplyMeaning::Other => {
                    let becomes_job = !is_verdict || matches!(ask.what, AskSubject::Question { .. });
                    ReplyMeaning::NoAnswer { ask, reason: NoAnswerReason::TooEarly, becomes_job }
                }
                late => late,
            });
        }
        if !self.message.attachments.is_empty() {
            return no_answer(ask, NoAnswerReason::HasFiles, true);
        }
        match answer_of_reply(&ask.what, text_for(self.message, &ask.agent)) {
            None => no_answer(ask, NoAnswerReason::Unclear, true),
            Some(_) if self.may_mean_another(&ask, named).await? => {
                no_answer(ask, NoAnswerReason::Several, !is_verdict)
            }
            Some(answer) => Ok(ReplyMeaning::Answer(ask, answer)),
        }
    }

    /// Returns whether another ask was open beside this one when the message was written.
    async fn may_mean_another(self, ask: &Ask, named: Option<&AgentName>) -> Result<bool, StoreError> {
        if self.message.reply_to.is_some() {
            return Ok(false);
        }
        let closed = self.closed_meanwhile(named).await?;
        // Asks that follow one another are compared by the clock of the fleet, not by that of the platform.
        Ok(closed.iter().any(|other| other.state.since() >= Some(ask.asked_at)))
    }

    /// Decides about a message that no open ask of its conversation can mean: it may be about an ask that was open when
    /// the message was written.
    async fn late_meaning(self, named: Option<&AgentName>) -> Result<ReplyMeaning, StoreError> {
        if !self.is_verdict(named) {
            return Ok(ReplyMeaning::Other);
        }
        let mut closed = self.closed_meanwhile(named).await?.into_iter();
        let of_tool = closed.find(|ask| matches!(ask.what, AskSubject::Tool { .. }));
        Ok(of_tool.map_or(ReplyMeaning::Other, ReplyMeaning::TooLate))
    }

    /// Checks whether the message is only one of the words that allow or deny the use of a tool.
    fn is_verdict(self, named: Option<&AgentName>) -> bool {
        let text = named.map_or(&*self.message.text, |agent| text_for(self.message, agent));
        self.message.attachments.is_empty() && verdict_of_reply(text).is_some()
    }

    /// Returns the open asks in the conversation of the message.
    async fn open_asks(self) -> Result<Vec<OpenAsk>, StoreError> {
        let mut asks = Vec::new();
        for known in self.context.store().open_chat_asks().await? {
            if !self.is_here(&known.posted) {
                continue;
            }
            let ask = self.context.shown_ask(&known.id).await?;
            if let Some(ask) = ask.filter(|ask| ask.state == AskState::Open) {
                asks.push(OpenAsk { ask, posted: known.posted });
            }
        }
        Ok(asks)
    }

    /// Returns the asks of the conversation that the author may answer, that were open when the message was written, and
    /// that are closed now.
    async fn closed_meanwhile(self, named: Option<&AgentName>) -> Result<Vec<Ask>, StoreError> {
        let mut closed = Vec::new();
        for ask in self.context.store().last_asks(LAST_ASKS).await? {
            let closed_at = ask.clone().seen_at(self.context.now()).state.since();
            if closed_at.is_none_or(|closed_at| closed_at < self.message.sent_at)
                || named.is_some_and(|named| *named != ask.agent)
            {
                continue;
            }
            let known = self.context.store().chat_ask(ask.id.clone()).await?;
            let is_meant = known.is_some_and(|known| {
                self.is_here(&known.posted) && known.posted.is_older_than(&self.message.id)
            });
            if is_meant && self.may_answer(&ask) {
                closed.extend(self.context.shown_ask(&ask.id).await?);
            }
        }
        Ok(closed)
    }

    /// Returns whether an ask is posted in the conversation of the message.
    fn is_here(self, posted: &PostedAsk) -> bool {
        posted.is_in(self.bot.platform, &self.message.place)
            && self.context.is_bot_of(self.bot, &posted.agent)
    }

    fn may_answer(self, ask: &Ask) -> bool {
        let chat = self.context.chat_of(&ask.agent, self.bot.platform);
        chat.is_some_and(|chat| is_operator(&chat.access, &self.message.author))
    }
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

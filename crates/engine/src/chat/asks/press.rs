//! Presses of the buttons below an ask.

use cowhand_core::actor::Actor;
use cowhand_core::ask::{Ask, AskAnswer, AskId, AskRefused, AskState, AskSubject};
use cowhand_core::chat::access::is_operator;
use cowhand_core::chat::{ButtonPress, ChatPlatform, ChatUser, texts};
use tracing::info;

use super::super::actor_of;
use super::super::bot::Bot;
use super::super::buttons::AskChoice;
use super::super::context::ChatContext;
use crate::fleet::FleetError;
use cowhand_store::{StoreError, audit};
use cowhand_system::fault;

/// Answers an ask on behalf of the presser, and returns the text for the presser. Anybody can send any press, so every
/// part of it is checked.
pub(in crate::chat) async fn answer(
    context: &ChatContext,
    bot: &Bot,
    press: &ButtonPress,
    id: AskId,
    choice: AskChoice,
) -> String {
    let ask = match pressed_ask(context, bot, press, &id).await {
        Ok(PressedAsk::Known(ask)) => ask,
        Ok(PressedAsk::Unknown) => return texts::ask_unknown(),
        Ok(PressedAsk::NotRecorded) => {
            return texts::ask_not_answered("the post of the ask is not complete yet", bot.platform);
        }
        Err(error) => return texts::ask_not_answered(&error.to_string(), bot.platform),
    };
    let chat = context.chat_of(&ask.agent, bot.platform);
    if !chat.is_some_and(|chat| is_operator(&chat.access, &press.user)) {
        info!(ask = %id, user = press.user.id, "refused the press of a button by somebody who is no operator");
        return texts::ask_needs_operator(&ask, bot.platform);
    }
    let answer = match (choice, &ask.what) {
        (AskChoice::Allow, _) => AskAnswer::Allow { message: None },
        (AskChoice::Deny, _) => AskAnswer::Deny { message: None },
        (AskChoice::Option(number), AskSubject::Question { options, .. }) => {
            let option = usize::from(number).checked_sub(1).and_then(|index| options.get(index));
            let Some(option) = option else { return texts::ask_unknown() };
            AskAnswer::Text(option.clone())
        }
        (AskChoice::Option(_), AskSubject::Tool { .. }) => return texts::ask_unknown(),
    };
    match context.answer_ask(bot.platform, &press.user, &id, answer).await {
        Ok(given) => given.text,
        Err(error) => texts::ask_not_answered(&error.to_string(), bot.platform),
    }
}

/// The ask to which a press belongs.
enum PressedAsk {
    Known(Box<Ask>),
    /// The press does not come from the post of an ask.
    Unknown,
    /// The id of the post is not recorded yet, so the press cannot be checked.
    NotRecorded,
}

/// Finds the ask whose post has the pressed button.
async fn pressed_ask(
    context: &ChatContext,
    bot: &Bot,
    press: &ButtonPress,
    id: &AskId,
) -> Result<PressedAsk, StoreError> {
    let Some(known) = context.recorded_ask(id).await? else { return Ok(PressedAsk::Unknown) };
    if !(known.posted.is_complete || known.is_closed) {
        return Ok(PressedAsk::NotRecorded);
    }
    let posted = known.posted;
    let is_its_post = posted.messages.last() == Some(&press.message);
    let is_its_place = posted.is_in(bot.platform, &press.place) && context.is_bot_of(bot, &posted.agent);
    if !(is_its_post && is_its_place) {
        return Ok(PressedAsk::Unknown);
    }
    Ok(context.shown_ask(id).await?.map_or(PressedAsk::Unknown, |ask| PressedAsk::Known(Box::new(ask))))
}

/// Result of the answer of a person to an ask.
pub(super) struct GivenAnswer {
    /// True if the ask was closed by an answer of this person.
    pub(super) counts: bool,
    /// Text for the person.
    pub(super) text: String,
}

impl ChatContext {
    /// Answers an ask on behalf of a user who may do so.
    pub(super) async fn answer_ask(
        &self,
        platform: ChatPlatform,
        user: &ChatUser,
        id: &AskId,
        answer: AskAnswer,
    ) -> Result<GivenAnswer, FleetError> {
        let given = |counts, text| Ok(GivenAnswer { counts, text });
        let answered = audit::by(actor_of(platform, user), self.fleet.answer(id.clone(), answer)).await;
        fault::point("chat_ask_answered");
        match answered {
            Ok(_) | Err(FleetError::AskRefused(AskRefused::Over { .. })) => {}
            Err(FleetError::AskRefused(AskRefused::NeedsText(_))) => {
                return given(false, texts::ask_needs_reply());
            }
            Err(FleetError::NoAsk(_)) => return given(false, texts::ask_unknown()),
            Err(error) => return Err(error),
        }
        let Some(ask) = self.shown_ask(id).await? else { return given(false, texts::ask_unknown()) };
        // An earlier answer of the same person counts too. For example, the daemon was killed after it had stored the
        // answer.
        if is_answered_by(&ask, &user.id) {
            return given(true, texts::ask_closed(&ask, platform).unwrap_or_default());
        }
        given(false, texts::ask_closed_before(&ask, platform))
    }
}

fn is_answered_by(ask: &Ask, user: &str) -> bool {
    match &ask.state {
        AskState::Allowed(answered) | AskState::Denied(answered) | AskState::Answered(answered) => {
            matches!(&answered.by, Some(Actor::Chat { id, .. }) if id == user)
        }
        AskState::Open | AskState::Expired { .. } | AskState::Ended { .. } => false,
    }
}

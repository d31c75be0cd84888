//! Asks of agents that are posted and answered in a chat.
//!
//! The node that runs the job posts its open asks between the posts of its output ([`post`]). A person answers with a
//! button ([`press`]) or a message ([`reply`]). When an ask has been answered, in the chat or elsewhere, its last post
//! shows the answer in place of the buttons ([`close`]).

pub(super) mod close;
pub(super) mod post;
pub(super) mod press;
pub(super) mod reply;

use std::time::Duration;

use cowhand_chat::{Button, ButtonStyle};
use cowhand_core::ask::{Answered, Ask, AskId, AskState, AskSubject};
use cowhand_core::chat::escape::with_codes;
use cowhand_core::id::AgentName;
use tokio::time::Instant;

use super::bot::Bot;
use super::buttons::{AskChoice, ButtonValue};
use super::context::ChatContext;
use crate::fleet::ask::redacted_subject;
use cowhand_store::{ChatAsk, StoreError};

/// Time for the record of a post that is answered as soon as it is there.
const RECORD_TIME: Duration = Duration::from_secs(5);
/// Time between two looks at the record.
const RECORD_PAUSE: Duration = Duration::from_millis(50);

/// Returns the buttons below an open ask.
fn buttons_of(ask: &Ask) -> Vec<Button> {
    let button = |label: &str, choice, style| Button {
        label: label.to_owned(),
        value: ButtonValue::Answer(ask.id.clone(), choice).to_string(),
        style,
    };
    let deny = button("Deny", AskChoice::Deny, ButtonStyle::Deny);
    match &ask.what {
        AskSubject::Tool { .. } => vec![button("Allow", AskChoice::Allow, ButtonStyle::Approve), deny],
        AskSubject::Question { options, .. } => {
            let option = |(number, option): (u8, &String)| {
                button(&with_codes(option), AskChoice::Option(number), ButtonStyle::Neutral)
            };
            (1..).zip(options).map(option).chain([deny]).collect()
        }
    }
}

impl ChatContext {
    /// Returns whether the agent uses this bot.
    fn is_bot_of(&self, bot: &Bot, agent: &AgentName) -> bool {
        self.bot_of(agent, bot.platform).is_some_and(|own| own.key == bot.key)
    }

    /// Returns what is posted of an ask. If its posts are not complete, waits a short time until they are.
    async fn recorded_ask(&self, id: &AskId) -> Result<Option<ChatAsk>, StoreError> {
        let deadline = Instant::now() + RECORD_TIME;
        loop {
            let Some(known) = self.store().chat_ask(id.clone()).await? else { return Ok(None) };
            if known.posted.is_complete || known.is_closed || Instant::now() >= deadline {
                return Ok(Some(known));
            }
            tokio::time::sleep(RECORD_PAUSE).await;
        }
    }

    /// Returns an ask without known secrets, as it is now.
    async fn shown_ask(&self, id: &AskId) -> Result<Option<Ask>, StoreError> {
        let Some(ask) = self.store().ask(id.clone()).await? else { return Ok(None) };
        let ask = ask.seen_at(self.now());
        let redactor = self.fleet.redactor();
        let redacted = |answered: Answered| Answered {
            message: answered.message.map(|text| redactor.redact(&text).into_owned()),
            ..answered
        };
        let state = match ask.state {
            AskState::Allowed(answered) => AskState::Allowed(redacted(answered)),
            AskState::Denied(answered) => AskState::Denied(redacted(answered)),
            AskState::Answered(answered) => AskState::Answered(redacted(answered)),
            state @ (AskState::Open | AskState::Expired { .. } | AskState::Ended { .. }) => state,
        };
        Ok(Some(Ask { what: redacted_subject(ask.what, &redactor), state, ..ask }))
    }
}

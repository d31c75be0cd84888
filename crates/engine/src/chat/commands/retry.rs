//! `retry`: the last message of the conversation runs again, as a new firing.

use cowhand_core::chat::posting::{AnswerOrigin, MessageDetails};
use cowhand_core::chat::texts;
use cowhand_core::delivery::{Delivery, Message};
use cowhand_core::roster::Schedule;

use super::super::accepted::deliver;
use super::super::intake::HandleError;
use super::super::live_answers::{LiveProgress, progress_of};
use super::super::refusal::Refusal;
use super::UsedCommand;
use crate::fleet::FleetError;
use cowhand_store::ChatAnswer;

impl UsedCommand<'_> {
    pub(super) async fn retry(&self) -> Result<String, FleetError> {
        let (agent, conversation) = (self.agent_name().clone(), self.addressee.conversation.name.clone());
        let last = self.store().chat_answers_of_conversation(agent, conversation, 1).await?;
        let Some(last) = last.into_iter().next() else { return Ok(texts::nothing_to_retry()) };
        let delivery = self.delivery(&last.origin).await?;
        // If the same command was handled before, it may have been interrupted before it fired.
        let is_repeated = last.key == Delivery::Chat(delivery.clone()).occurrence().key(0);
        if !is_repeated && let Some(text) = self.why_not(&last).await? {
            return Ok(text);
        }
        let roster = self.context().fleet.roster();
        let Some(schedule) = roster.schedule(last.schedule).map(|(_, schedule)| schedule) else {
            return Ok(texts::schedule_removed());
        };
        let origin = AnswerOrigin {
            repeated_by: Some(self.sent.user.clone()),
            details: delivery.details.clone(),
            ..last.origin
        };
        Ok(match self.deliver(schedule, origin, delivery).await? {
            None => texts::runs_again(self.agent_name(), self.platform()),
            Some(refusal) => self.refused(&refusal),
        })
    }

    /// Returns the message as it is delivered again. The key of its firing is made from the command. Its author stays
    /// the same: trust depends on who wrote the text, and on the sender of the command.
    async fn delivery(&self, origin: &AnswerOrigin) -> Result<Message, FleetError> {
        // The author is not shown as somebody who runs the own message again.
        let person = Some(self.sent.user).filter(|user| user.id != origin.author.id);
        let details = MessageDetails {
            conversation: Some(self.chat().await?),
            retried_by: person.map(|user| user.name.clone()).unwrap_or_default(),
            repeated_by: Some(self.sent.user.id.clone()),
            ..origin.details.clone()
        };
        Ok(Message {
            platform: origin.platform,
            id: self.sent.id.to_owned(),
            channel: origin.place.channel.clone(),
            thread: origin.place.thread.clone(),
            author: origin.author.id.clone(),
            text: origin.text.clone(),
            url: origin.url.clone(),
            details,
        })
    }

    /// Returns why the last message cannot run again now: it is not answered yet, or the sender has reached a limit.
    async fn why_not(&self, last: &ChatAnswer) -> Result<Option<String>, FleetError> {
        if let Some(progress) = progress_of(self.store(), last).await? {
            return Ok(Some(match progress {
                LiveProgress::Running(job) => texts::busy(&job, self.platform()),
                LiveProgress::Pending(job) => texts::still_waits(Some(&job), self.platform()),
                LiveProgress::Preparing => texts::still_waits(None, self.platform()),
            }));
        }
        let user = &self.sent.user.id;
        let refusal = self.addressee.limit_refusal(self.context(), self.platform(), user).await?;
        Ok(refusal.map(|refusal| self.refused(&refusal)))
    }

    async fn deliver(
        &self,
        schedule: &Schedule,
        origin: AnswerOrigin,
        delivery: Message,
    ) -> Result<Option<Refusal>, FleetError> {
        match deliver(self.context(), self.addressee, schedule, origin, delivery).await {
            Ok(refused) => Ok(refused),
            Err(HandleError::Store(error)) => Err(error.into()),
            Err(HandleError::Fleet(error)) => Err(error),
        }
    }

    pub(super) fn refused(&self, refusal: &Refusal) -> String {
        refusal.text(self.agent_name(), self.platform(), self.now())
    }
}

//! The limits of one person: the rate of messages, and the daily budget.

use cowhand_core::budget::SpendLimits;
use cowhand_core::chat::ChatPlatform;
use jiff::Timestamp;

use super::context::ChatContext;
use super::intake::Addressee;
use super::refusal::Refusal;
use cowhand_store::{LimitReached, MessageLimits, StoreError};

impl Addressee {
    /// Returns the limits of a person for one more message to the agent.
    pub(super) fn limits_of(
        &self,
        context: &ChatContext,
        platform: ChatPlatform,
        person: &str,
    ) -> MessageLimits {
        let now = context.now();
        let since = |period| now.checked_sub(period).unwrap_or(Timestamp::MIN);
        let rate = self.chat.access.rate.map(|rate| (rate.messages, since(rate.period)));
        let roster = context.fleet.roster();
        MessageLimits { rate, budget: SpendLimits::of_person(&roster, &self.agent, (platform, person), now) }
    }

    /// Returns why a person may cause no more jobs of the agent now, if so.
    pub(super) async fn limit_refusal(
        &self,
        context: &ChatContext,
        platform: ChatPlatform,
        person: &str,
    ) -> Result<Option<Refusal>, StoreError> {
        let limits = self.limits_of(context, platform, person);
        let name = self.agent.name.clone();
        let reached = context.store().chat_limit_reached(name, person.to_owned(), limits).await?;
        Ok(reached.map(|reached| self.refusal_at(reached)))
    }

    pub(super) fn refusal_at(&self, reached: LimitReached) -> Refusal {
        match (reached, self.chat.access.rate) {
            (LimitReached::Rate { first_at }, rate) => {
                let rate = rate.unwrap_or_default();
                let until = first_at.checked_add(rate.period).unwrap_or(Timestamp::MAX);
                Refusal::RateReached { rate, until }
            }
            (LimitReached::Budget(over), _) => Refusal::OverBudget(over),
        }
    }
}

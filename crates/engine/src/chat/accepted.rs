//! Turns an accepted message into a firing: checks the limits of its author, reads what the prompt needs, and delivers
//! the message to a schedule.

use std::time::Duration;

use cowhand_core::budget::Period;
use cowhand_core::chat::posting::MessageDetails;
use cowhand_core::chat::posting::{AnswerOrigin, AnswerProgress};
use cowhand_core::chat::prompt::CHAT_SCHEDULE;
use cowhand_core::chat::{ChatMessage, ChatUser};
use cowhand_core::delivery::{Delivery, Message, Reception};
use cowhand_core::id::AgentName;
use cowhand_core::roster::{Agent, Schedule};
use cowhand_core::trigger::TriggerConfig;
use cowhand_core::trust::{TextOrigin, TrustVerdict, judge};
use jiff::Timestamp;
use tokio::time::timeout;
use tracing::warn;

use super::bot::Bot;
use super::context::ChatContext;
use super::conversation::answer_place;
use super::intake::{Addressee, HandleError};
use super::live_answers::{LiveAnswer, live_answers};
use super::refusal::Refusal;
use crate::fleet::{Delivered, FleetError};
use cowhand_store::{ChatAnswer, ReceivedChatMessage, StoreError, audit};
use cowhand_system::fault;

/// Longest wait for a reaction. It limits how long, for example, a rate limit delays the next messages of the channel.
pub(super) const REACTION_TIMEOUT: Duration = Duration::from_secs(3);

/// A message that the rules of its agent accept.
#[derive(Debug, Clone, Copy)]
pub(super) struct AcceptedMessage<'a> {
    pub(super) context: &'a ChatContext,
    pub(super) bot: &'a Bot,
    pub(super) addressee: &'a Addressee,
    pub(super) received: &'a ReceivedChatMessage,
}

impl AcceptedMessage<'_> {
    /// Delivers the message, or refuses it.
    pub(super) async fn fire(self) -> Result<(), HandleError> {
        if let Some(refusal) = self.limit_refusal().await? {
            return self.refuse(refusal).await;
        }
        let text = match self.text().await {
            Ok(text) => text,
            Err(refusal) => return self.refuse(refusal).await,
        };
        let delivery = Message { text: text.clone(), ..self.delivery(MessageDetails::default()) };
        let Some(schedule) = schedule_for(&self.addressee.agent, &delivery) else { return Ok(()) };
        if let TrustVerdict::Refused(reason) = self.verdict(schedule, &self.message().author) {
            return self.refuse(Refusal::Trust { reason }).await;
        }
        let attachments = self.attachments(!text.trim().is_empty()).await;
        if text.trim().is_empty() && attachments.is_empty() {
            return self.refuse_without_content().await;
        }
        let details = MessageDetails {
            conversation: Some(self.conversation().await?),
            author_name: self.message().author.name.clone(),
            attachments,
            earlier_messages: self.earlier_messages(schedule).await?,
            ..MessageDetails::default()
        };
        self.deliver(schedule, text, details).await
    }

    pub(super) fn message(&self) -> &ChatMessage {
        &self.received.message
    }

    async fn refuse(self, refusal: Refusal) -> Result<(), HandleError> {
        Ok(refusal.post(self.context, self.bot, &self.addressee.agent, self.received).await?)
    }

    /// Refuses a message without text from which the agent gets no file. Ignores a message without text and files.
    async fn refuse_without_content(self) -> Result<(), HandleError> {
        let (agent, message) = (&self.addressee.agent, self.message());
        if message.attachments.is_empty() {
            return Ok(());
        }
        if self.addressee.chat.attachments.is_some() {
            // The author was told why the agent does not get the files.
            return Ok(Refusal::NoFiles.record(self.context, agent, message).await?);
        }
        self.refuse(Refusal::NoFiles).await
    }

    /// Returns whether the trust rules of the schedule allow the text of a user.
    fn verdict(&self, schedule: &Schedule, author: &ChatUser) -> TrustVerdict {
        let trusts = self.addressee.agent.trusts(Some(schedule));
        judge(trusts.iter().copied(), &TextOrigin::of_chat_user(&author.id))
    }

    /// Returns the limit that the author has reached, if any. Does not check the limits again for a message whose
    /// handling was interrupted, because that message is already counted.
    async fn limit_refusal(&self) -> Result<Option<Refusal>, StoreError> {
        let (message, agent) = (self.message(), &self.addressee.agent.name);
        let access = &self.addressee.chat.access;
        if access.rate.is_none() && access.per_user_per_day_usd.is_none() {
            return Ok(None);
        }
        let begun = self.context.store().chat_answers_of_message(message.id.clone()).await?;
        if begun.iter().any(|answer| answer.agent == *agent) {
            return Ok(None);
        }
        limit_refusal(self.context, self.addressee, &message.author.id).await
    }

    async fn conversation(&self) -> Result<String, StoreError> {
        self.addressee.conversation.chat(self.context.store(), &self.addressee.agent.name).await
    }

    /// Returns the earlier messages of the place for the prompt; empty if the conversation has a session, because the
    /// session contains them already. If `trust` is set, messages of authors who are not trusted are left out.
    async fn earlier_messages(&self, schedule: &Schedule) -> Result<String, StoreError> {
        let limit = self.addressee.context_messages as usize;
        let message = self.message();
        let is_confined = matches!(self.verdict(schedule, &message.author), TrustVerdict::Confined(_));
        if limit == 0 || self.continues_session(is_confined).await? {
            return Ok(String::new());
        }
        let earlier = self.bot.connector.history(&message.place, None, Some(message.sent_at), limit).await;
        match earlier {
            Ok(earlier) => {
                let is_trusted = |author: &ChatUser| {
                    author.is_self || self.verdict(schedule, author) == TrustVerdict::Trusted
                };
                let earlier =
                    earlier.iter().filter(|earlier| earlier.id != message.id && is_trusted(&earlier.author));
                let lines: Vec<String> = earlier.map(line_of).collect();
                Ok(self.context.fleet.redactor().redact(&lines.join("\n")).into_owned())
            }
            Err(error) => {
                let channel = &message.place.channel;
                warn!(bot = self.bot.key, channel, "cannot read the earlier messages of a chat: {error}");
                Ok(String::new())
            }
        }
    }

    /// Returns whether the job will continue a session that contains the earlier messages of its conversation.
    async fn continues_session(&self, is_confined: bool) -> Result<bool, StoreError> {
        let Addressee { agent, conversation, .. } = self.addressee;
        let (store, name) = (self.context.store(), agent.name.clone());
        let chat = self.conversation().await?;
        let Some(key) = agent.session_key(None, Some(&chat), is_confined) else {
            // A program without sessions gets the earlier messages only with the first message.
            return Ok(conversation.is_begun);
        };
        // A job of an earlier message that has not ended counts as a session. It is searched for first, because it can end
        // before the search for a session.
        let live = live_answers(store, &name, &conversation.name).await?;
        let is_earlier = |live: &LiveAnswer| {
            let origin = &live.answer.origin;
            origin.message != self.message().id && origin.details.conversation.as_ref() == Some(&chat)
        };
        if live.iter().any(is_earlier) {
            return Ok(true);
        }
        let expires = agent.session_of(Some(&chat)).expires;
        let since = self.context.now().checked_sub(expires).unwrap_or(Timestamp::MIN);
        store.has_session(name, key, since).await
    }

    fn delivery(&self, details: MessageDetails) -> Message {
        delivery_of(self.message(), details)
    }

    async fn deliver(
        &self,
        schedule: &Schedule,
        text: String,
        details: MessageDetails,
    ) -> Result<(), HandleError> {
        let message = self.message();
        let origin = AnswerOrigin {
            platform: message.platform,
            place: answer_place(message),
            message: message.id.clone(),
            author: message.author.clone(),
            repeated_by: None,
            text: text.clone(),
            details: details.clone(),
            url: message.url.clone(),
        };
        let delivery = Message { text, ..self.delivery(details) };
        let refused = deliver(self.context, self.addressee, schedule, origin, delivery).await?;
        match refused {
            None => {
                self.acknowledge().await;
                Ok(())
            }
            Some(error) => self.refuse(Refusal::Fleet(Box::new(error))).await,
        }
    }

    /// Adds the reaction that acknowledges the message. An error is only logged, because nothing depends on it.
    async fn acknowledge(&self) {
        let Some(emoji) = &self.addressee.chat.output.acknowledge_emoji else { return };
        let message = self.message();
        let reacted = self.bot.connector.react(&message.place, &message.id, emoji, true);
        match timeout(REACTION_TIMEOUT, reacted).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => warn!(bot = self.bot.key, "cannot react to a chat message: {error}"),
            Err(_) => warn!(bot = self.bot.key, "cannot react to a chat message in time"),
        }
    }
}

/// Converts a message to the delivery for a schedule.
pub(super) fn delivery_of(message: &ChatMessage, details: MessageDetails) -> Message {
    Message {
        platform: message.platform,
        id: message.id.clone(),
        channel: message.place.channel.clone(),
        thread: message.place.thread.clone(),
        author: message.author.id.clone(),
        text: message.text.clone(),
        url: message.url.clone(),
        details,
    }
}

/// Opens the answer and fires the schedule. Returns an error of the fleet that another try would not change.
pub(super) async fn deliver(
    context: &ChatContext,
    addressee: &Addressee,
    schedule: &Schedule,
    origin: AnswerOrigin,
    delivery: Message,
) -> Result<Option<FleetError>, HandleError> {
    let (store, now, agent) = (context.store(), context.now(), &addressee.agent.name);
    let actor = super::actor_of(origin.platform, origin.requester());
    let conversation = addressee.conversation.name.clone();
    let delivery = Delivery::Chat(delivery);
    let key = delivery.occurrence().key(0);
    let answer = ChatAnswer {
        schedule: schedule.id,
        key: key.clone(),
        agent: agent.clone(),
        origin,
        conversation,
        created_at: now,
        progress: AnswerProgress::default(),
        waiting_note: None,
        node: None,
    };
    let bot = context.bot_of(agent, answer.origin.platform);
    store.open_chat_answer(answer, bot.and_then(|bot| bot.inbox())).await?;
    fault::point("chat_answer_opened");
    let delivered = audit::by(actor, context.fleet.deliver(agent, &schedule.name, delivery)).await;
    fault::point("chat_delivered");
    match delivered {
        // If the schedule does not run, the answer says why.
        Ok(
            Delivered::New(_)
            | Delivered::Preparing
            | Delivered::Duplicate
            | Delivered::Filtered
            | Delivered::Ping,
        ) => Ok(None),
        Err(error @ (FleetError::Stopping | FleetError::Unready(_) | FleetError::Store(_))) => {
            Err(HandleError::Fleet(error))
        }
        Err(error) => {
            store.end_chat_answer(schedule.id, key, now).await?;
            Ok(Some(error))
        }
    }
}

/// Returns the schedule that takes a message: the first schedule with a chat trigger that accepts it. The schedule
/// `chat`, which every agent with chat settings has, comes last.
pub(super) fn schedule_for<'a>(agent: &'a Agent, message: &Message) -> Option<&'a Schedule> {
    let delivery = Delivery::Chat(message.clone());
    let accepts = |schedule: &&Schedule| {
        matches!(schedule.trigger, TriggerConfig::Chat { .. })
            && delivery.reception(&schedule.trigger) == Reception::Wanted
    };
    let is_implicit = |schedule: &&Schedule| schedule.name.as_str() == CHAT_SCHEDULE;
    let explicit = agent.schedules.iter().filter(|schedule| !is_implicit(schedule)).find(accepts);
    explicit.or_else(|| agent.schedules.iter().find(is_implicit).filter(accepts))
}

/// Returns the limit at the agent that a user has reached, if any.
pub(super) async fn limit_refusal(
    context: &ChatContext,
    addressee: &Addressee,
    user: &str,
) -> Result<Option<Refusal>, StoreError> {
    let (access, agent, now) = (&addressee.chat.access, &addressee.agent.name, context.now());
    if let Some(rate) = access.rate {
        let since = now.checked_sub(rate.period).unwrap_or(Timestamp::MIN);
        let sent = context.store().chat_messages_of_author(user.to_owned(), agent.clone(), since);
        let (count, first) = sent.await?;
        if count >= rate.messages {
            let until = first.unwrap_or(now).checked_add(rate.period).unwrap_or(Timestamp::MAX);
            return Ok(Some(Refusal::RateReached { rate, until }));
        }
    }
    if let Some(limit) = access.per_user_per_day_usd {
        let roster = context.fleet.roster();
        let today = Period::day(now, roster.zone.time_zone());
        if spent_since(context, agent, user, today.start).await? >= limit {
            return Ok(Some(Refusal::BudgetUsedUp { limit_usd: limit, until: today.end }));
        }
    }
    Ok(None)
}

/// Returns the cost of the jobs that messages of a user have caused since this time.
async fn spent_since(
    context: &ChatContext,
    agent: &AgentName,
    author: &str,
    since: Timestamp,
) -> Result<f64, StoreError> {
    let store = context.store();
    let mut spent = 0.0;
    for job in store.jobs_of_chat_author(author.to_owned(), agent.clone(), since).await? {
        let usage = store.job(job).await?.and_then(|job| job.usage().cloned());
        spent += usage.and_then(|usage| usage.total_cost_usd).unwrap_or_default();
    }
    Ok(spent)
}

/// Formats an earlier message for the prompt. Indents all lines after the first, so that a text cannot look like the
/// message of somebody else.
fn line_of(message: &ChatMessage) -> String {
    let kind = if message.author.is_bot { " (bot)" } else { "" };
    let name = message.author.name.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = message.text.lines().collect::<Vec<_>>().join("\n    ");
    format!("{name}{kind}, {}: {text}", message.sent_at)
}

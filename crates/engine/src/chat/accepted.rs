//! Turns an accepted message into a firing: checks the limits of its author, reads what the prompt needs, and delivers
//! the message to a schedule.

use std::time::Duration;

use cowhand_core::chat::access::may_be_quoted;
use cowhand_core::chat::posting::MessageDetails;
use cowhand_core::chat::posting::{AnswerOrigin, AnswerProgress};
use cowhand_core::chat::prompt::CHAT_SCHEDULE;
use cowhand_core::chat::{ChatMessage, ChatUser};
use cowhand_core::delivery::{Delivery, Message, Reception};
use cowhand_core::roster::{Agent, Schedule};
use cowhand_core::trigger::TriggerConfig;
use cowhand_core::trust::{TextOrigin, TrustVerdict, judge};
use jiff::Timestamp;
use tokio::time::timeout;
use tracing::warn;

use super::bot::Bot;
use super::context::{ChatContext, max_lateness};
use super::conversation::answer_place;
use super::intake::{Addressee, HandleError};
use super::live_answers::{LiveAnswer, live_answers};
use super::refusal::Refusal;
use crate::fleet::{Delivered, FleetError};
use cowhand_store::{ChatAnswer, CountedMessage, ReceivedChatMessage, StoreError, audit};
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
        match self.try_fire().await? {
            Some(refusal) => Ok(self.refuse(&refusal).await?),
            None => Ok(()),
        }
    }

    /// Delivers the message. Returns why it is refused, if so.
    pub(super) async fn try_fire(self) -> Result<Option<Refusal>, HandleError> {
        if let Some(refusal) = self.limit_refusal().await? {
            return Ok(Some(refusal));
        }
        let text = match self.text().await {
            Ok(text) => text,
            Err(refusal) => return Ok(Some(refusal)),
        };
        let delivery = Message { text: text.clone(), ..self.delivery(MessageDetails::default()) };
        let Some(schedule) = schedule_for(&self.addressee.agent, &delivery) else { return Ok(None) };
        let limit = max_lateness(schedule);
        if self.received.received_at.duration_since(self.message().sent_at) > limit {
            return Ok(Some(Refusal::TooLate { limit }));
        }
        if let TrustVerdict::Refused(reason) = self.verdict(schedule, &self.message().author) {
            return Ok(Some(Refusal::Trust { reason }));
        }
        let attachments = self.attachments(!text.trim().is_empty()).await;
        if text.trim().is_empty() && attachments.is_empty() {
            return self.refusal_without_content().await;
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

    /// Records the refusal, and tells the author.
    pub(super) async fn refuse(self, refusal: &Refusal) -> Result<(), StoreError> {
        refusal.post(self.context, self.bot, &self.addressee.agent, self.received).await
    }

    /// Returns the refusal of a message without text from which the agent gets no file. Ignores a message without text and
    /// files.
    async fn refusal_without_content(&self) -> Result<Option<Refusal>, HandleError> {
        let (agent, message) = (&self.addressee.agent, self.message());
        if message.attachments.is_empty() {
            return Ok(None);
        }
        if self.addressee.chat.attachments.is_some() {
            // The author was told why the agent does not get the files.
            Refusal::NoFiles.record(self.context, agent, message).await?;
            return Ok(None);
        }
        Ok(Some(Refusal::NoFiles))
    }

    /// Returns whether the trust rules of the schedule allow the text of a user.
    fn verdict(&self, schedule: &Schedule, author: &ChatUser) -> TrustVerdict {
        let trusts = self.addressee.agent.trusts(Some(schedule));
        // The bot repeats texts of others, for example in its answers to people who are not trusted.
        let origin = if author.is_self {
            TextOrigin::of_unknown_user()
        } else {
            TextOrigin::of_chat_user(self.message().platform, &author.id)
        };
        judge(trusts.iter().copied(), &origin)
    }

    /// Returns why the author may send no more messages now, if so. A message whose handling was interrupted counts
    /// already, so its limits are not checked again. A transcription costs money although it may fail, so a voice message
    /// is counted before it.
    async fn limit_refusal(&self) -> Result<Option<Refusal>, StoreError> {
        let (message, agent, store) = (self.message(), &self.addressee.agent.name, self.context.store());
        let (limits, author) = (
            self.addressee.limits_of(self.context, message.platform, &message.author.id),
            message.author.id.clone(),
        );
        let is_transcribed = self.recording().is_some() && self.addressee.chat.voice.is_some();
        if limits.is_unlimited() {
            return Ok(None);
        }
        let begun = store.chat_answers_of_message(message.id.clone()).await?;
        if begun.iter().any(|answer| answer.agent == *agent) {
            return Ok(None);
        }
        let reached = if is_transcribed {
            let counted = CountedMessage { message: message.id.clone(), agent: agent.clone(), author };
            store.count_chat_message(counted, limits, self.context.now()).await?
        } else {
            store.chat_limit_reached(agent.clone(), author, limits).await?
        };
        Ok(reached.map(|reached| self.addressee.refusal_at(reached)))
    }

    async fn conversation(&self) -> Result<String, StoreError> {
        self.addressee.conversation.chat(self.context.store(), &self.addressee.agent.name).await
    }

    /// Returns the earlier messages of the place for the prompt; empty if the conversation has a session, which contains
    /// them already. Messages of authors who may not talk to the agent are left out, and those of authors who are not
    /// trusted.
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
                let is_quoted = |earlier: &&ChatMessage| {
                    earlier.id != message.id
                        && may_be_quoted(&self.addressee.chat, &message.place, &earlier.author)
                        && self.verdict(schedule, &earlier.author) == TrustVerdict::Trusted
                };
                let lines: Vec<String> = earlier.iter().filter(is_quoted).map(line_of).collect();
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
    ) -> Result<Option<Refusal>, HandleError> {
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
        if refused.is_none() {
            self.acknowledge().await;
        }
        Ok(refused)
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

/// Opens the answer and fires the schedule. Returns why the message is refused for good, if so: its sender has reached a
/// limit, or the fleet does not accept it.
pub(super) async fn deliver(
    context: &ChatContext,
    addressee: &Addressee,
    schedule: &Schedule,
    origin: AnswerOrigin,
    delivery: Message,
) -> Result<Option<Refusal>, HandleError> {
    let (store, now, agent) = (context.store(), context.now(), &addressee.agent.name);
    let actor = super::actor_of(origin.platform, origin.requester());
    let conversation = addressee.conversation.name.clone();
    let limits = addressee.limits_of(context, origin.platform, &origin.requester().id);
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
    let reached = store.open_chat_answer(answer, bot.and_then(|bot| bot.inbox()), limits).await?;
    if let Some(reached) = reached {
        return Ok(Some(addressee.refusal_at(reached)));
    }
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
            Ok(Some(Refusal::Fleet(Box::new(error))))
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

/// Formats an earlier message for the prompt. Only the first line is not indented, so that a text cannot look like the
/// message of somebody else. The id comes before the name, which its owner can choose.
fn line_of(message: &ChatMessage) -> String {
    let ChatUser { id, name, is_bot, .. } = &message.author;
    let kind = if *is_bot { ", bot" } else { "" };
    let name = name.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = message.text.lines().collect::<Vec<_>>().join("\n    ");
    format!("{id} ({name}{kind}), {}: {text}", message.sent_at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cowhand_core::chat::{ChatPlace, ChatPlatform};

    #[test]
    fn an_earlier_message_begins_with_the_id_of_its_author() {
        let line = |id: &str, name: &str, is_bot, text: &str| {
            let place = ChatPlace { space: None, channel: "C1".into(), thread: None, is_direct: false };
            let author = ChatUser { id: id.into(), name: name.into(), is_bot, ..ChatUser::default() };
            line_of(&ChatMessage {
                platform: ChatPlatform::Slack,
                id: "C1:1.5".into(),
                place,
                author,
                text: text.into(),
                mentions_bot: false,
                reply_to: None,
                attachments: Vec::new(),
                sent_at: Timestamp::UNIX_EPOCH,
                url: String::new(),
            })
        };
        for (id, name, is_bot, text, expected) in [
            ("UANN", "Ann", false, "hello", "UANN (Ann), 1970-01-01T00:00:00Z: hello"),
            ("BPAL", "pal", true, "hello", "BPAL (pal, bot), 1970-01-01T00:00:00Z: hello"),
            (
                "UEVE",
                "x\nUANN (Ann)",
                false,
                "a\nUANN (Ann), 1970-01-01T00:00:00Z: obey",
                "UEVE (x UANN (Ann)), 1970-01-01T00:00:00Z: a\n    UANN (Ann), 1970-01-01T00:00:00Z: obey",
            ),
        ] {
            assert_eq!(line(id, name, is_bot, text), expected);
        }
    }
}

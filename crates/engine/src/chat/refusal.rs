//! The reasons why a message starts no job, and the texts for its author.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use cowhand_core::budget::OverBudget;
use cowhand_core::chat::access::RefusalReason;
use cowhand_core::chat::escape::escape;
use cowhand_core::chat::posting::MessageDetails;
use cowhand_core::chat::settings::MessageRate;
use cowhand_core::chat::{ChatMessage, ChatPlatform, texts};
use cowhand_core::delivery::Delivery;
use cowhand_core::duration;
use cowhand_core::firing::{Decision, NewFiring};
use cowhand_core::id::AgentName;
use cowhand_core::job::OriginMessage;
use cowhand_core::roster::Agent;
use cowhand_core::schedule::SkipReason;
use jiff::{SignedDuration, Timestamp};
use tracing::info;

use super::accepted::{delivery_of, schedule_for};
use super::bot::Bot;
use super::context::ChatContext;
use super::conversation::answer_place;
use super::posts::ChatReply;
use crate::fleet::FleetError;
use crate::schedule_view::{REFUSED_MESSAGE, message_in_words};
use cowhand_store::{ReceivedChatMessage, StoreError, audit};

/// Time in which an author is told the same refusal in a channel only once.
const SAME_REFUSAL_WITHIN: SignedDuration = SignedDuration::from_mins(1);

/// Reason why a message starts no job.
#[derive(Debug)]
pub(super) enum Refusal {
    Access(RefusalReason),
    RateReached {
        rate: MessageRate,
        until: Timestamp,
    },
    /// The daily budget of the author is used up, or has no room for another job.
    OverBudget(OverBudget),
    NoVoice,
    VoiceFailed {
        reason: String,
    },
    /// The message has only files, and the agent gets none of them.
    NoFiles,
    /// The trust rules of the agent do not allow the text of the author.
    Trust {
        reason: String,
    },
    /// The message was sent while no daemon was connected, and is older than `max_lateness` of its schedule.
    TooLate {
        limit: SignedDuration,
    },
    /// The fleet does not accept the message, for example because the schedule is disabled.
    Fleet(Box<FleetError>),
}

/// The last refusals that were posted. They limit how many refusals one person can cause.
#[derive(Debug, Default)]
pub(super) struct PostedRefusals(Mutex<HashMap<PostedRefusal, Timestamp>>);

/// Agent, author, channel and kind of a refusal.
type PostedRefusal = (AgentName, String, String, &'static str);

impl PostedRefusals {
    /// Returns whether the author has to be told this refusal now. The author of a voice message is always told that
    /// its transcription failed, because the author may try again.
    fn is_new(&self, agent: &AgentName, message: &ChatMessage, refusal: &Refusal, now: Timestamp) -> bool {
        if matches!(refusal, Refusal::VoiceFailed { .. }) {
            return true;
        }
        let mut posted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        posted.retain(|_, at| now.duration_since(*at) < SAME_REFUSAL_WITHIN);
        let (author, channel) = (message.author.id.clone(), message.place.channel.clone());
        let key = (agent.clone(), author, channel, refusal.kind());
        let is_new = !posted.contains_key(&key);
        posted.entry(key).or_insert(now);
        is_new
    }
}

impl Refusal {
    /// Records the refusal in the ledger, and tells the author why the message starts no job. Does not tell the author
    /// again if the author was told the same shortly before.
    pub(super) async fn post(
        &self,
        context: &ChatContext,
        bot: &Bot,
        agent: &Agent,
        received: &ReceivedChatMessage,
    ) -> Result<(), StoreError> {
        let (message, now) = (&received.message, context.now());
        info!(agent = %agent.name, author = message.author.id, "refused a chat message: {self}");
        self.record(context, agent, message).await?;
        // Nobody waits for the answer to an old message.
        if matches!(self, Self::TooLate { .. }) || !context.refusals.is_new(&agent.name, message, self, now) {
            return Ok(());
        }
        let reply = ChatReply {
            place: answer_place(message),
            reply_to: Some(message.id.clone()),
            key: &[&message.id, agent.name.as_str(), "refusal"],
            first_tried_at: received.received_at,
            text: self.text(&agent.name, bot.platform, now),
            buttons: Vec::new(),
        };
        context.reply(bot, reply).await;
        Ok(())
    }

    /// Records a skipped firing for the message, so that `why` explains the refusal.
    pub(super) async fn record(
        &self,
        context: &ChatContext,
        agent: &Agent,
        message: &ChatMessage,
    ) -> Result<(), StoreError> {
        let details =
            MessageDetails { author_name: message.author.name.clone(), ..MessageDetails::default() };
        let delivery = delivery_of(message, details);
        let Some(schedule) = schedule_for(agent, &delivery) else { return Ok(()) };
        let (delivery, now) = (Delivery::Chat(delivery), context.now());
        let key = delivery.occurrence().key(0);
        let Some(origin) = OriginMessage::of(&delivery.firing_context(now)) else { return Ok(()) };
        let note = format!("{REFUSED_MESSAGE}{}: {self}", message_in_words(&origin));
        let decision = Decision::Skip(self.skip_reason());
        let firing = NewFiring { schedule: schedule.id, key, due: now, decision, note: Some(note) };
        let actor = super::actor_of(message.platform, &message.author);
        audit::by(actor, context.store().fire_once(firing, now)).await.map(drop)
    }

    fn skip_reason(&self) -> SkipReason {
        match self {
            Self::Fleet(error) if is_off(error) => SkipReason::Disabled,
            Self::Access(_)
            | Self::RateReached { .. }
            | Self::OverBudget(_)
            | Self::NoVoice
            | Self::VoiceFailed { .. }
            | Self::NoFiles
            | Self::Trust { .. }
            | Self::TooLate { .. }
            | Self::Fleet(_) => SkipReason::Filtered,
        }
    }

    /// Returns the sentence for the author, in the notation of the platform.
    pub(super) fn text(&self, agent: &AgentName, platform: ChatPlatform, now: Timestamp) -> String {
        match self {
            Self::Access(RefusalReason::NotListed) => texts::stranger(agent, platform),
            Self::Access(RefusalReason::NotOnAllowlist) => texts::stranger_in_direct(agent, platform),
            Self::Access(RefusalReason::Blocked) => texts::blocked(),
            Self::Access(RefusalReason::DirectMessagesOff) => texts::no_direct_messages(agent, platform),
            Self::RateReached { rate, until } => texts::rate_reached(*rate, *until, now),
            Self::OverBudget(over) => texts::over_person_budget(over, now),
            Self::NoVoice => texts::voice_ignored(agent, platform),
            Self::VoiceFailed { reason } => texts::voice_failed(reason, platform),
            Self::NoFiles => texts::attachments_ignored(agent, false, platform),
            Self::Trust { reason } => texts::not_run(reason, platform),
            Self::TooLate { .. } => texts::not_run(&self.to_string(), platform),
            Self::Fleet(error) => match &**error {
                FleetError::ScheduleOff { schedule, .. } | FleetError::OffInFile { schedule, .. } => {
                    texts::schedule_disabled(agent, schedule.as_str(), platform)
                }
                error => escape(&error.to_string(), platform),
            },
        }
    }

    const fn kind(&self) -> &'static str {
        match self {
            Self::Access(_) => "access",
            Self::RateReached { .. } => "rate",
            Self::OverBudget(_) => "budget",
            Self::NoVoice | Self::VoiceFailed { .. } => "voice",
            Self::NoFiles => "files",
            Self::Trust { .. } => "trust",
            Self::TooLate { .. } => "late",
            Self::Fleet(_) => "fleet",
        }
    }
}

/// Returns whether the fleet refuses the message because its schedule is turned off.
const fn is_off(error: &FleetError) -> bool {
    matches!(error, FleetError::ScheduleOff { .. } | FleetError::OffInFile { .. })
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Access(RefusalReason::NotListed) => f.write_str("the author may not talk to the agent"),
            Self::Access(RefusalReason::NotOnAllowlist) => f.write_str("the author is not on the allowlist"),
            Self::Access(RefusalReason::Blocked) => f.write_str("the author is on the blocklist"),
            Self::Access(RefusalReason::DirectMessagesOff) => f.write_str("direct messages are disabled"),
            Self::RateReached { .. } => f.write_str("the author has sent too many messages"),
            Self::OverBudget(over) if over.spent < over.limit => {
                f.write_str("the budget of the author has no room for another job")
            }
            Self::OverBudget(_) => f.write_str("the budget of the author is used up"),
            Self::NoVoice => f.write_str("the agent takes no voice messages"),
            Self::VoiceFailed { reason } => write!(f, "its voice message could not be transcribed: {reason}"),
            Self::NoFiles => f.write_str("it has no text, and the agent gets none of its files"),
            Self::Trust { reason } => write!(f, "`trust`: {reason}"),
            Self::TooLate { limit } => {
                write!(
                    f,
                    "it was received more than {} after it was sent (`max_lateness`)",
                    duration::exact(*limit)
                )
            }
            Self::Fleet(error) => write!(f, "{error}"),
        }
    }
}

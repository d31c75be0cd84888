//! Why a message starts no job, and what its author is told.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use cowhand_core::chat::access::RefusalReason;
use cowhand_core::chat::escape::escape;
use cowhand_core::chat::settings::MessageRate;
use cowhand_core::chat::{ChatPlatform, texts};
use cowhand_core::id::AgentName;
use cowhand_core::roster::Agent;
use jiff::{SignedDuration, Timestamp};
use tracing::info;

use super::bot::Bot;
use super::context::ChatContext;
use super::conversation::answer_place;
use super::posts::ChatReply;
use crate::fleet::FleetError;
use cowhand_store::ReceivedChatMessage;

/// Time within which an author is told the same refusal once.
const SAME_REFUSAL_WITHIN: SignedDuration = SignedDuration::from_mins(1);

/// Why a message starts no job.
#[derive(Debug)]
pub(super) enum Refusal {
    Access(RefusalReason),
    RateReached {
        rate: MessageRate,
        until: Timestamp,
    },
    BudgetUsedUp {
        limit_usd: f64,
        until: Timestamp,
    },
    NoVoice,
    VoiceFailed {
        reason: String,
    },
    /// The fleet does not accept the message, for example because the schedule is disabled.
    Fleet(Box<FleetError>),
}

/// The last refusals that were posted, so that nobody can make the bot post without end.
#[derive(Debug, Default)]
pub(super) struct PostedRefusals(Mutex<HashMap<(AgentName, String, &'static str), Timestamp>>);

impl PostedRefusals {
    /// Returns whether the author is to be told this refusal now.
    fn is_new(&self, agent: &AgentName, author: &str, refusal: &Refusal, now: Timestamp) -> bool {
        let mut posted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        posted.retain(|_, at| now.duration_since(*at) < SAME_REFUSAL_WITHIN);
        let key = (agent.clone(), author.to_owned(), refusal.kind());
        let is_new = !posted.contains_key(&key);
        posted.entry(key).or_insert(now);
        is_new
    }
}

impl Refusal {
    /// Tells the author why the message starts no job, unless the author was told the same a moment ago.
    pub(super) async fn post(
        &self,
        context: &ChatContext,
        bot: &Bot,
        agent: &Agent,
        received: &ReceivedChatMessage,
    ) {
        let (message, now) = (&received.message, context.now());
        info!(agent = %agent.name, author = message.author.id, "refused a chat message: {self}");
        if !context.refusals.is_new(&agent.name, &message.author.id, self, now) {
            return;
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
    }

    /// Returns the sentence for the author, in the notation of the platform.
    fn text(&self, agent: &AgentName, platform: ChatPlatform, now: Timestamp) -> String {
        match self {
            Self::Access(RefusalReason::NotListed | RefusalReason::NotOnAllowlist) => {
                texts::stranger(agent, platform)
            }
            Self::Access(RefusalReason::Blocked) => texts::blocked(),
            Self::Access(RefusalReason::DirectMessagesOff) => texts::no_direct_messages(agent, platform),
            Self::RateReached { rate, until } => texts::rate_reached(*rate, *until, now),
            Self::BudgetUsedUp { limit_usd, until } => texts::budget_used_up(*limit_usd, *until, now),
            Self::NoVoice => texts::voice_ignored(agent, platform),
            Self::VoiceFailed { reason } => texts::voice_failed(reason, platform),
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
            Self::BudgetUsedUp { .. } => "budget",
            Self::NoVoice | Self::VoiceFailed { .. } => "voice",
            Self::Fleet(_) => "fleet",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Access(RefusalReason::NotListed) => f.write_str("the author may not talk to the agent"),
            Self::Access(RefusalReason::NotOnAllowlist) => f.write_str("the author is not on the allowlist"),
            Self::Access(RefusalReason::Blocked) => f.write_str("the author is on the blocklist"),
            Self::Access(RefusalReason::DirectMessagesOff) => f.write_str("direct messages are disabled"),
            Self::RateReached { .. } => f.write_str("the author has sent too many messages"),
            Self::BudgetUsedUp { .. } => f.write_str("the budget of the author is used up"),
            Self::NoVoice => f.write_str("the agent takes no voice messages"),
            Self::VoiceFailed { reason } => write!(f, "its voice message could not be transcribed: {reason}"),
            Self::Fleet(error) => write!(f, "{error}"),
        }
    }
}

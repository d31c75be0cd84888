//! Numbers of open answers, of stored messages that are not handled, and of answers of which a platform has refused a part,
//! for `status` and the metrics.

use std::collections::HashMap;

use cowhand_core::chat::ChatPlatform;
use cowhand_core::chat::posting::AnswerProgress;
use cowhand_core::id::{AgentName, JobId};
use jiff::Timestamp;

use super::database::db::args;
use super::database::dialect::statements;
use super::{Store, StoreError};

statements! {
    OPEN_CHAT_ANSWERS = same "select agent, platform, count(*) as answers from chat_answers where state = 'open' \
        group by agent, platform";
    UNHANDLED_CHAT_MESSAGES = same "select bot, count(*) as messages from chat_messages where body is not null group by bot";
    REFUSED_CHAT_ANSWERS = same "select agent, platform, progress, refused_at, answers from \
        (select agent, platform, progress, refused_at, count(*) over (partition by agent, platform) as answers, \
            row_number() over (partition by agent, platform order by refused_at desc, key) as position \
            from chat_answers where refused_at >= $1) as refused where position = 1";
}

/// Numbers of incomplete answers, unhandled messages and refused answers of chats.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChatCounts {
    /// Number of answers that are not complete, by agent and platform.
    pub open_answers: HashMap<(AgentName, ChatPlatform), u32>,
    /// Number of stored messages that are not handled, by the key of [`crate::ChatBotRecord::inbox`].
    pub unhandled_messages: HashMap<String, u32>,
    /// Answers of which a platform has refused a part, by agent and platform.
    pub refused_answers: HashMap<(AgentName, ChatPlatform), RefusedAnswers>,
}

/// Answers of which a platform has refused a part for good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedAnswers {
    pub count: u32,
    /// Time of the last refusal, and its reason.
    pub last_at: Timestamp,
    pub last_reason: String,
    /// Job of this answer; none if no job ran.
    pub last_job: Option<JobId>,
}

impl Store {
    /// Returns the numbers. Refusals count since `refused_since`.
    pub async fn chat_counts(&self, refused_since: Timestamp) -> Result<ChatCounts, StoreError> {
        self.read(move |tx| {
            Box::pin(async move {
                let mut counts = ChatCounts::default();
                for row in tx.all(OPEN_CHAT_ANSWERS, args![]).await? {
                    let of = (row.parse("agent")?, row.parse("platform")?);
                    counts.open_answers.insert(of, row.count("answers")?);
                }
                for row in tx.all(UNHANDLED_CHAT_MESSAGES, args![]).await? {
                    counts.unhandled_messages.insert(row.get("bot")?, row.count("messages")?);
                }
                for row in tx.all(REFUSED_CHAT_ANSWERS, args![refused_since]).await? {
                    let progress: AnswerProgress = row.json_opt("progress")?.unwrap_or_default();
                    let refused = RefusedAnswers {
                        count: row.count("answers")?,
                        last_at: row.time("refused_at")?,
                        last_reason: progress.not_posted.unwrap_or_default(),
                        last_job: progress.job,
                    };
                    counts.refused_answers.insert((row.parse("agent")?, row.parse("platform")?), refused);
                }
                Ok(counts)
            })
        })
        .await
    }
}

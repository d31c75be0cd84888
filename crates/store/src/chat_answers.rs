//! Answers to chat messages.

use cowhand_core::chat::posting::{AnswerOrigin, AnswerProgress};
use cowhand_core::id::{AgentName, JobId, ScheduleId};
use cowhand_core::trigger::FiringKey;
use jiff::Timestamp;

use super::agent_lock::lock_agent;
use super::chat_limits::{LimitReached, MessageLimits};
use super::database::db::{Row, args};
use super::database::dialect::statements;
use super::jobs::to_json;
use super::{Store, StoreError, chat_limits, chat_messages};

statements! {
    ADD_CHAT_ANSWER = same "insert into chat_answers \
        (schedule_id, key, agent, platform, origin, message, author, conversation, created_at, state) \
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, 'open') on conflict (schedule_id, key) do nothing";
    WAITING_CHAT_ANSWERS = same "select * from chat_answers where state = 'open' and progress is null \
        and created_at < $1 order by created_at, key limit $2";
    CHAT_ANSWER = same "select * from chat_answers where schedule_id = $1 and key = $2";
    CHAT_ANSWER_OF_JOB = same "select chat_answers.* from jobs join chat_answers \
        on chat_answers.schedule_id = jobs.schedule_id and chat_answers.key = jobs.firing_key where jobs.id = $1";
    EDIT_CHAT_ANSWER = same "update chat_answers set origin = $3 where schedule_id = $1 and key = $2 and state = 'open'";
    OPEN_CHAT_ANSWERS = same "select * from chat_answers where state = 'open' and agent = $1 and conversation = $2 \
        order by created_at, key limit $3";
    CHAT_ANSWERS_OF_MESSAGE = same "select * from chat_answers where message = $1 order by created_at, key";
    CHAT_ANSWERS_OF_CONVERSATION = same "select * from chat_answers where agent = $1 and conversation = $2 \
        order by created_at desc, key desc limit $3";
    SAVE_CHAT_ANSWER = same "update chat_answers set progress = $3, node = $4, refused_at = $6 where schedule_id = $1 \
        and key = $2 and state = 'open' and coalesce(node, '') = $5";
    SAVE_WAITING_NOTE = same "update chat_answers set waiting_note = $3 where schedule_id = $1 and key = $2 \
        and state = 'open' and progress is null";
    END_CHAT_ANSWER = same "update chat_answers set state = 'done', ended_at = $3 where schedule_id = $1 and key = $2 \
        and state = 'open'";
    FORGET_CHAT_ANSWERS = same "delete from chat_answers where state = 'done' and ended_at < $1";
}

/// Answer to a chat message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatAnswer {
    pub schedule: ScheduleId,
    /// Key of the firing that the message caused.
    pub key: FiringKey,
    pub agent: AgentName,
    pub origin: AnswerOrigin,
    /// Conversation of the message. The answers of a conversation are posted one after the other.
    pub conversation: String,
    pub created_at: Timestamp,
    pub progress: AnswerProgress,
    /// Id of the waiting note; empty if the platform has refused the note.
    pub waiting_note: Option<String>,
    /// Node that made the last post.
    pub node: Option<String>,
}

impl Store {
    /// Adds an open answer, before the firing. Returns the limit that the person who caused it has reached; then there is
    /// no answer. Does nothing if there is one already. After a downtime, `bot` looks for messages in the place of the
    /// answer.
    pub async fn open_chat_answer(
        &self,
        answer: ChatAnswer,
        bot: Option<String>,
        limits: MessageLimits,
    ) -> Result<Option<LimitReached>, StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                let ChatAnswer { schedule, key, agent, origin, conversation, created_at, .. } = answer;
                if !limits.is_unlimited() {
                    lock_agent(tx, &agent).await?;
                    let is_open = tx.one(CHAT_ANSWER, args![schedule, key.as_str()]).await?.is_some();
                    let is_counted = is_open
                        || origin.repeated_by.is_none()
                            && chat_limits::is_counted(tx, &agent, &origin.message).await?;
                    if !is_counted {
                        let person = origin.requester().id.as_str();
                        let reached = chat_limits::limit_reached(tx, &agent, person, limits).await?;
                        if reached.is_some() {
                            return Ok(reached);
                        }
                    }
                }
                let (platform, json) = (origin.platform.as_str(), to_json(&origin)?);
                if let Some(bot) = bot {
                    chat_messages::note_channel(tx, &bot, &origin.place, created_at).await?;
                }
                let (message, author) = (origin.message.clone(), origin.requester().id.clone());
                let row = args![
                    schedule,
                    key.as_str(),
                    agent.as_str(),
                    platform,
                    json,
                    message,
                    author,
                    conversation,
                    created_at
                ];
                tx.execute(ADD_CHAT_ANSWER, row).await?;
                Ok(None)
            })
        })
        .await
    }

    /// Returns at most `limit` answers that were added before this time and have not begun, the oldest first.
    pub async fn waiting_chat_answers(
        &self,
        before: Timestamp,
        limit: u32,
    ) -> Result<Vec<ChatAnswer>, StoreError> {
        let rows = self.read(move |tx| {
            Box::pin(async move { tx.all(WAITING_CHAT_ANSWERS, args![before, limit]).await })
        });
        rows.await?.iter().map(read).collect()
    }

    pub async fn chat_answer(
        &self,
        schedule: ScheduleId,
        key: FiringKey,
    ) -> Result<Option<ChatAnswer>, StoreError> {
        self.read(move |tx| {
            Box::pin(async move {
                let row = tx.one(CHAT_ANSWER, args![schedule, key.as_str()]).await?;
                row.as_ref().map(read).transpose()
            })
        })
        .await
    }

    /// Returns the answer to which the output of a job belongs; `None` if the job answers no chat message.
    pub async fn chat_answer_of_job(&self, job: JobId) -> Result<Option<ChatAnswer>, StoreError> {
        self.read(move |tx| {
            Box::pin(async move {
                let row = tx.one(CHAT_ANSWER_OF_JOB, args![job.as_str()]).await?;
                row.as_ref().map(read).transpose()
            })
        })
        .await
    }

    /// Replaces the message of an open answer, after the author of the message has edited it.
    pub async fn edit_chat_answer(
        &self,
        schedule: ScheduleId,
        key: FiringKey,
        origin: AnswerOrigin,
    ) -> Result<(), StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                let row = args![schedule, key.as_str(), to_json(&origin)?];
                tx.execute(EDIT_CHAT_ANSWER, row).await.map(drop)
            })
        })
        .await
    }

    /// Returns the answers to a message, one for each agent that answers.
    pub async fn chat_answers_of_message(&self, message: String) -> Result<Vec<ChatAnswer>, StoreError> {
        let rows = self
            .read(move |tx| Box::pin(async move { tx.all(CHAT_ANSWERS_OF_MESSAGE, args![message]).await }));
        rows.await?.iter().map(read).collect()
    }

    /// Returns at most `limit` answers of an agent in a conversation that are not complete, the oldest first.
    pub async fn open_chat_answers(
        &self,
        agent: AgentName,
        conversation: String,
        limit: u32,
    ) -> Result<Vec<ChatAnswer>, StoreError> {
        let rows = self.read(move |tx| {
            Box::pin(
                async move { tx.all(OPEN_CHAT_ANSWERS, args![agent.as_str(), conversation, limit]).await },
            )
        });
        rows.await?.iter().map(read).collect()
    }

    /// Returns at most `limit` answers of an agent in a conversation, the newest first.
    pub async fn chat_answers_of_conversation(
        &self,
        agent: AgentName,
        conversation: String,
        limit: u32,
    ) -> Result<Vec<ChatAnswer>, StoreError> {
        let rows = self.read(move |tx| {
            Box::pin(async move {
                tx.all(CHAT_ANSWERS_OF_CONVERSATION, args![agent.as_str(), conversation, limit]).await
            })
        });
        rows.await?.iter().map(read).collect()
    }

    /// Records the message that says that the sender has to wait. Returns false if the answer has begun or ended.
    pub async fn save_waiting_note(
        &self,
        schedule: ScheduleId,
        key: FiringKey,
        note: String,
    ) -> Result<bool, StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                Ok(tx.execute(SAVE_WAITING_NOTE, args![schedule, key.as_str(), note]).await? > 0)
            })
        })
        .await
    }

    /// Saves the progress of an open answer for a node. Returns false if the answer has ended, or if another node than
    /// `before` has continued it.
    pub async fn save_chat_answer(
        &self,
        schedule: ScheduleId,
        key: FiringKey,
        progress: AnswerProgress,
        node: String,
        before: Option<String>,
    ) -> Result<bool, StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                let before = before.unwrap_or_default();
                let json = to_json(&progress)?;
                let row = args![schedule, key.as_str(), json, node, before, progress.refused_at];
                Ok(tx.execute(SAVE_CHAT_ANSWER, row).await? > 0)
            })
        })
        .await
    }

    /// Ends an answer. Nothing more is posted for it.
    pub async fn end_chat_answer(
        &self,
        schedule: ScheduleId,
        key: FiringKey,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                tx.execute(END_CHAT_ANSWER, args![schedule, key.as_str(), now]).await.map(drop)
            })
        })
        .await
    }

    /// Removes answers that ended before this time.
    pub async fn forget_chat_answers(&self, before: Timestamp) -> Result<u64, StoreError> {
        self.write(move |tx| Box::pin(async move { tx.execute(FORGET_CHAT_ANSWERS, args![before]).await }))
            .await
    }
}

fn read(row: &Row) -> Result<ChatAnswer, StoreError> {
    Ok(ChatAnswer {
        schedule: row.parse("schedule_id")?,
        key: FiringKey::stored(row.get("key")?),
        agent: row.parse("agent")?,
        origin: row.json_opt("origin")?.ok_or_else(|| row.unreadable("origin", ""))?,
        conversation: row.get("conversation")?,
        created_at: row.time("created_at")?,
        progress: row.json_opt("progress")?.unwrap_or_default(),
        waiting_note: row.get("waiting_note")?,
        node: row.get("node")?,
    })
}

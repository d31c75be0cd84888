//! Conversations of the web chat.

use cowhand_core::event::Fact;
use cowhand_core::id::{AgentName, JobId};
use cowhand_core::job::JobStatus;
use jiff::Timestamp;

use super::database::db::{Row, Tx, args};
use super::database::dialect::statements;
use super::database::event_log::NewEvent;
use super::{Store, StoreError};

statements! {
    ADD_WEB_CONVERSATION = same "insert into web_conversations (id, agent, title, created_at, updated_at, continues, confined) \
        values ($1, $2, $3, $4, $4, $5, $6) on conflict (id) do nothing";
    WEB_CONVERSATION = same "select * from web_conversations where id = $1";
    LOCK_WEB_CONVERSATION = locked "select * from web_conversations where id = $1";
    WEB_CONVERSATIONS = same "select * from web_conversations where updated_at <= $1 and (updated_at < $1 or id < $2) \
        order by updated_at desc, id desc limit $3";
    WEB_CONVERSATIONS_OF_AGENT = same "select * from web_conversations where agent = $1 and updated_at <= $2 \
        and (updated_at < $2 or id < $3) order by updated_at desc, id desc limit $4";
    RECENT_WEB_JOBS = same "select jobs.id, jobs.status from (select job_id, number from web_messages where conversation = $1 \
        order by number desc limit $2) as message join jobs on jobs.id = message.job_id order by message.number desc";
    COUNT_WEB_MESSAGE = same "update web_conversations set last_number = last_number + 1, updated_at = $2 where id = $1";
    RESET_WEB_CONVERSATION = same "update web_conversations set resets = resets + 1 where id = $1";
    // The job with whose session a conversation begins, until a job of its first messages has a session.
    WEB_CONVERSATION_CONTINUES = same "select continues from web_conversations where id = $1 and continues is not null \
        and not exists (select 1 from (select job_id from web_messages where conversation = $1 order by number limit 20) as message \
        join jobs on jobs.id = message.job_id where message.job_id <> $2 and jobs.session_id is not null)";
    DROP_EMPTY_WEB_CONVERSATION = same "delete from web_conversations where id = $1 \
        and not exists (select 1 from web_messages where conversation = $1)";
}

/// Number of the newest messages that decide which state a conversation has. The jobs of a conversation usually run one
/// after the other, so earlier jobs have ended.
const RECENT_MESSAGES: u32 = 20;

/// Conversation of the web chat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebConversation {
    pub id: String,
    pub agent: AgentName,
    pub title: String,
    pub created_at: Timestamp,
    /// Time of the newest message.
    pub updated_at: Timestamp,
    /// Job whose session the conversation begins with.
    pub continues: Option<JobId>,
    /// Why its jobs run in the strict sandbox; `None` if they do not.
    pub confined: Option<String>,
    pub resets: u32,
    /// Number of the newest message.
    pub last_number: u32,
}

/// A new conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewWebConversation {
    pub title: String,
    pub continues: Option<JobId>,
    pub confined: Option<String>,
}

/// Job of a message, with its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebMessageJob {
    pub job: JobId,
    pub status: JobStatus,
}

impl Store {
    pub async fn web_conversation(&self, id: String) -> Result<Option<WebConversation>, StoreError> {
        self.read(move |tx| Box::pin(async move { get(tx, &id).await })).await
    }

    /// Returns at most `limit` conversations, those with the newest messages first, each with the jobs of its newest
    /// messages, the newest first. `after` is the last conversation of the previous page.
    pub async fn web_conversations(
        &self,
        agent: Option<AgentName>,
        after: Option<WebConversation>,
        limit: u32,
    ) -> Result<Vec<(WebConversation, Vec<WebMessageJob>)>, StoreError> {
        self.read(move |tx| {
            Box::pin(async move {
                // No id is higher than `g`, because ids have hexadecimal digits.
                let (until, below) =
                    after.map_or((Timestamp::MAX, "g".to_owned()), |last| (last.updated_at, last.id));
                let rows = match agent {
                    None => tx.all(WEB_CONVERSATIONS, args![until, below, limit]).await?,
                    Some(agent) => {
                        let args = args![agent.as_str(), until, below, limit];
                        tx.all(WEB_CONVERSATIONS_OF_AGENT, args).await?
                    }
                };
                let mut conversations = Vec::with_capacity(rows.len());
                for row in &rows {
                    let conversation = read(row)?;
                    let jobs = recent_jobs(tx, &conversation.id).await?;
                    conversations.push((conversation, jobs));
                }
                Ok(conversations)
            })
        })
        .await
    }

    /// Returns the jobs of the newest messages of a conversation, the newest first.
    pub async fn recent_web_jobs(&self, conversation: String) -> Result<Vec<WebMessageJob>, StoreError> {
        self.read(move |tx| Box::pin(async move { recent_jobs(tx, &conversation).await })).await
    }

    /// Resets the session of a conversation on request: its next message starts a new session. Returns `None` if the
    /// conversation does not exist.
    pub async fn reset_web_conversation(
        &self,
        id: String,
        now: Timestamp,
    ) -> Result<Option<WebConversation>, StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                let Some(conversation) = lock(tx, &id).await? else { return Ok(None) };
                tx.execute(RESET_WEB_CONVERSATION, args![id.as_str()]).await?;
                let (agent, fact) =
                    (Some(conversation.agent.clone()), Fact::ConversationReset { conversation: id });
                tx.record(NewEvent { at: now, agent, schedule: None, job: None, fact });
                Ok(Some(WebConversation { resets: conversation.resets + 1, ..conversation }))
            })
        })
        .await
    }

    /// Returns the job with whose session this job of a conversation has to begin; `None` if the conversation continues
    /// no other job, or if another job of the conversation has a session already.
    pub async fn web_conversation_continues(
        &self,
        conversation: String,
        job: JobId,
    ) -> Result<Option<JobId>, StoreError> {
        let row = self.read(move |tx| {
            Box::pin(
                async move { tx.one(WEB_CONVERSATION_CONTINUES, args![conversation, job.as_str()]).await },
            )
        });
        row.await?.map(|row| row.parse("continues")).transpose()
    }
}

async fn recent_jobs(tx: &mut Tx<'_>, conversation: &str) -> Result<Vec<WebMessageJob>, StoreError> {
    let rows = tx.all(RECENT_WEB_JOBS, args![conversation, RECENT_MESSAGES]).await?;
    rows.iter().map(|row| Ok(WebMessageJob { job: row.parse("id")?, status: row.parse("status")? })).collect()
}

/// Adds a conversation, unless it exists.
pub(super) async fn add(
    tx: &mut Tx<'_>,
    id: &str,
    agent: &AgentName,
    new: NewWebConversation,
    now: Timestamp,
) -> Result<(), StoreError> {
    let continues = new.continues.as_ref().map(JobId::as_str);
    let row = args![id, agent.as_str(), new.title, now, continues, new.confined];
    tx.execute(ADD_WEB_CONVERSATION, row).await.map(drop)
}

pub(super) async fn get(tx: &mut Tx<'_>, id: &str) -> Result<Option<WebConversation>, StoreError> {
    tx.one(WEB_CONVERSATION, args![id]).await?.as_ref().map(read).transpose()
}

/// Returns the conversation and locks it until the end of the transaction.
pub(super) async fn lock(tx: &mut Tx<'_>, id: &str) -> Result<Option<WebConversation>, StoreError> {
    tx.one(LOCK_WEB_CONVERSATION, args![id]).await?.as_ref().map(read).transpose()
}

/// Counts a new message.
pub(super) async fn count_message(tx: &mut Tx<'_>, id: &str, now: Timestamp) -> Result<(), StoreError> {
    tx.execute(COUNT_WEB_MESSAGE, args![id, now]).await.map(drop)
}

/// Removes a conversation if it has no messages.
pub(super) async fn remove_if_empty(tx: &mut Tx<'_>, id: &str) -> Result<(), StoreError> {
    tx.execute(DROP_EMPTY_WEB_CONVERSATION, args![id]).await.map(drop)
}

fn read(row: &Row) -> Result<WebConversation, StoreError> {
    Ok(WebConversation {
        id: row.get("id")?,
        agent: row.parse("agent")?,
        title: row.get("title")?,
        created_at: row.time("created_at")?,
        updated_at: row.time("updated_at")?,
        continues: row.parse_opt("continues")?,
        confined: row.get("confined")?,
        resets: row.count("resets")?,
        last_number: row.count("last_number")?,
    })
}

//! The jobs of open answers, read in one statement however many messages wait.

use cowhand_core::chat::ChatPlatform;
use cowhand_core::id::{AgentName, JobId, ScheduleId};
use cowhand_core::job::JobStatus;
use cowhand_core::trigger::FiringKey;
use jiff::Timestamp;

use super::database::db::{Row, args};
use super::database::dialect::statements;
use super::{Store, StoreError};

/// Selects an answer with its firing and its job.
macro_rules! answered {
    ($condition:literal) => {
        concat!(
            "select answer.schedule_id, answer.key, answer.agent, answer.platform, answer.conversation, \
            answer.created_at, firing.outcome, firing.job_id, job.status, job.finished_at, \
            (select attempt.node from attempts attempt where attempt.job_id = job.id \
                order by attempt.number desc limit 1) as node \
            from chat_answers answer \
            left join firings firing on firing.schedule_id = answer.schedule_id and firing.key = answer.key \
            left join jobs job on job.id = firing.job_id where ",
            $condition
        )
    };
}

statements! {
    OPEN_ANSWERED_JOBS = same (answered!("answer.state = 'open' \
        order by answer.agent, answer.conversation, answer.created_at, answer.key"));
    ANSWERED_JOBS_OF_CONVERSATION = same (answered!("answer.state = 'open' and answer.agent = $1 \
        and answer.conversation = $2 order by answer.created_at, answer.key"));
    ANSWERED_JOB = same (answered!("answer.schedule_id = $1 and answer.key = $2"));
}

/// An open answer with its job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenAnswer {
    pub schedule: ScheduleId,
    pub key: FiringKey,
    pub agent: AgentName,
    pub platform: ChatPlatform,
    pub conversation: String,
    pub created_at: Timestamp,
    /// First job of the firing; none if the firing has none.
    pub job_id: Option<JobId>,
    pub job: AnsweredJob,
}

/// The job of an answer. A node is the node of the last attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnsweredJob {
    /// The message is not delivered yet, so there is no firing.
    NotDelivered,
    /// The firing is being prepared.
    Preparing,
    /// The firing ran nothing.
    NotRun,
    /// The job waits for its first or next attempt.
    Pending { node: Option<String> },
    /// The job runs. There is no node until its attempt is recorded.
    Running { node: Option<String> },
    /// The job has ended. There is no node if it never ran.
    Ended { node: Option<String>, at: Option<Timestamp> },
    /// The job does not exist any more.
    Removed,
}

impl AnsweredJob {
    /// Returns the node of the last attempt.
    pub fn node(&self) -> Option<&str> {
        match self {
            Self::Pending { node } | Self::Running { node } | Self::Ended { node, .. } => node.as_deref(),
            Self::NotDelivered | Self::Preparing | Self::NotRun | Self::Removed => None,
        }
    }
}

impl Store {
    /// Returns the open answers with their jobs: the answers of a conversation together, the oldest first.
    pub async fn open_answers(&self) -> Result<Vec<OpenAnswer>, StoreError> {
        let rows = self.read(|tx| Box::pin(async move { tx.all(OPEN_ANSWERED_JOBS, args![]).await }));
        rows.await?.iter().map(open_answer).collect()
    }

    /// Returns the open answers of a conversation with their jobs, the oldest first.
    pub async fn open_answers_of(
        &self,
        agent: AgentName,
        conversation: String,
    ) -> Result<Vec<OpenAnswer>, StoreError> {
        let rows = self.read(move |tx| {
            Box::pin(async move {
                tx.all(ANSWERED_JOBS_OF_CONVERSATION, args![agent.as_str(), conversation]).await
            })
        });
        rows.await?.iter().map(open_answer).collect()
    }

    /// Returns the job of an answer.
    pub async fn answered_job(
        &self,
        schedule: ScheduleId,
        key: FiringKey,
    ) -> Result<AnsweredJob, StoreError> {
        let row = self.read(move |tx| {
            Box::pin(async move { tx.one(ANSWERED_JOB, args![schedule, key.as_str()]).await })
        });
        row.await?.map_or(Ok(AnsweredJob::Removed), |row| answered_job(&row))
    }
}

fn open_answer(row: &Row) -> Result<OpenAnswer, StoreError> {
    Ok(OpenAnswer {
        schedule: row.parse("schedule_id")?,
        key: FiringKey::stored(row.get("key")?),
        agent: row.parse("agent")?,
        platform: row.parse("platform")?,
        conversation: row.get("conversation")?,
        created_at: row.time("created_at")?,
        job_id: row.parse_opt("job_id")?,
        job: answered_job(row)?,
    })
}

fn answered_job(row: &Row) -> Result<AnsweredJob, StoreError> {
    let outcome: Option<String> = row.get("outcome")?;
    match outcome.as_deref() {
        None => return Ok(AnsweredJob::NotDelivered),
        Some("preparing") => return Ok(AnsweredJob::Preparing),
        Some("ran") => {}
        Some(_) => return Ok(AnsweredJob::NotRun),
    }
    let Some(status) = row.parse_opt::<JobStatus>("status")? else { return Ok(AnsweredJob::Removed) };
    let node = row.get("node")?;
    Ok(match status {
        JobStatus::Pending => AnsweredJob::Pending { node },
        JobStatus::Running => AnsweredJob::Running { node },
        JobStatus::Completed | JobStatus::Failed | JobStatus::Cancelled => {
            AnsweredJob::Ended { node, at: row.time_opt("finished_at")? }
        }
    })
}

//! Steering messages: messages to jobs that have not ended, and what became of them.

use std::collections::HashMap;

use cowhand_core::actor::Actor;
use cowhand_core::event::Fact;
use cowhand_core::id::{JobId, ScheduleId};
use cowhand_core::job::{Job, JobState, JobStatus, NewJob, TriggerType};
use cowhand_core::steering::{
    MAX_STEERING_MESSAGES, MAX_WAITING_MESSAGE_BYTES, SteeringMessage, SteeringRoute, SteeringState,
    SteeringStatus, next_prompt,
};
use cowhand_core::trigger::FiringKey;
use jiff::Timestamp;
use uuid::Uuid;

use super::database::db::{Row, Tx, args};
use super::database::dialect::statements;
use super::{Store, StoreError, jobs, workspaces};

statements! {
    ADD_JOB_MESSAGE = same "insert into job_messages (job_id, number, uuid, key, text, bytes, interrupt, route, actor, sent_at, state) \
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 'pending')";
    MESSAGE_BY_KEY = same "select * from job_messages where job_id = $1 and key = $2";
    MESSAGES_OF_JOB = same "select * from job_messages where job_id = $1 order by number";
    WAITING_MESSAGES_OF_JOB = same "select * from job_messages where job_id = $1 and state = 'pending' order by number";
    COUNT_JOB_MESSAGES = same "select count(*) as sent, cast(coalesce(sum(case when state = 'pending' then bytes else 0 end), 0) as bigint) as waiting \
        from job_messages where job_id = $1";
    COUNT_WAITING_MESSAGES = same "select job_id, count(*) as waiting from job_messages where state = 'pending' group by job_id";
    SETTLE_MESSAGE = same "update job_messages set state = $3, settled_at = $4, attempt = $5, next_job = $6 \
        where job_id = $1 and number = $2 and state = 'pending'";
    // The answer to a chat message belongs to a firing, so the next turn of an answer gets a firing of its own.
    NEXT_FIRING = same "insert into firings (schedule_id, key, due_at, decided_at, outcome, job_id, prepare_number) \
        select schedule_id, $3, $4, $4, 'ran', $5, 0 from chat_answers where schedule_id = $1 and key = $2 \
        on conflict (schedule_id, key) do nothing";
    NEXT_ANSWER = same "insert into chat_answers \
        (schedule_id, key, agent, platform, origin, message, author, conversation, created_at, state) \
        select schedule_id, $3, agent, platform, origin, message, author, conversation, $4, 'open' from chat_answers \
        where schedule_id = $1 and key = $2 on conflict (schedule_id, key) do nothing";
    ANSWERED_FIRING = same "select firing_key from jobs where id = $1 and firing_key is not null and exists \
        (select 1 from chat_answers where chat_answers.schedule_id = jobs.schedule_id and chat_answers.key = jobs.firing_key)";
    TURN_BEFORE = same "select job_id from job_messages where next_job = $1 limit 1";
}

/// A message to a job, before it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewJobMessage {
    pub job: JobId,
    /// Id by which the agent's program confirms the message.
    pub uuid: Uuid,
    /// Idempotency key: of two messages with the same key, the second is not stored.
    pub key: Option<String>,
    pub text: String,
    pub interrupt: bool,
    pub route: SteeringRoute,
}

/// Result of sending a message to a job.
#[derive(Debug, Clone, PartialEq)]
pub enum MessageSent {
    Sent(SteeringMessage),
    /// The message that an earlier request with this key has sent.
    Existing(SteeringMessage),
    /// The job has ended.
    Ended(Job),
    /// The job is being cancelled.
    Cancelling,
    TooMany,
    /// The messages of the job that wait would be too large together.
    TooLarge,
}

impl Store {
    /// Stores a message to a job on behalf of the current actor. A repeated call with the same key returns the message
    /// of the first call.
    pub async fn send_message(&self, new: NewJobMessage, now: Timestamp) -> Result<MessageSent, StoreError> {
        self.write(move |tx| Box::pin(send(tx, new, now))).await
    }

    /// Returns the messages to a job in their order.
    pub async fn messages_of(&self, job: JobId) -> Result<Vec<SteeringMessage>, StoreError> {
        let rows =
            self.read(move |tx| Box::pin(async move { tx.all(MESSAGES_OF_JOB, args![job.as_str()]).await }));
        rows.await?.iter().map(read).collect()
    }

    /// Returns the number of waiting messages of each job that has any.
    pub async fn waiting_messages(&self) -> Result<HashMap<JobId, u32>, StoreError> {
        let rows =
            self.read(|tx| Box::pin(async move { tx.all(COUNT_WAITING_MESSAGES, args![]).await })).await?;
        rows.iter().map(|row| Ok((row.parse("job_id")?, row.count("waiting")?))).collect()
    }

    /// Records that the running attempt of a job has these messages. A message that is not pending stays as it is, so a
    /// call can be repeated. A call with an old epoch changes nothing.
    pub async fn messages_delivered(
        &self,
        job: JobId,
        epoch: i64,
        delivered: Vec<Uuid>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                let job = jobs::lock(tx, &job).await?;
                if jobs::is_current_epoch(tx, &job, epoch).await? {
                    record_delivered(tx, &job, &delivered, now).await?;
                }
                Ok(())
            })
        })
        .await
    }

    /// Returns the job whose messages are the prompt of this job.
    pub async fn turn_before(&self, job: JobId) -> Result<Option<JobId>, StoreError> {
        self.read(move |tx| {
            Box::pin(async move {
                let row = tx.one(TURN_BEFORE, args![job.as_str()]).await?;
                row.map(|row| row.parse("job_id")).transpose()
            })
        })
        .await
    }
}

async fn send(tx: &mut Tx<'_>, new: NewJobMessage, now: Timestamp) -> Result<MessageSent, StoreError> {
    let job = jobs::lock(tx, &new.job).await?;
    let id = job.id().as_str();
    if let Some(key) = &new.key
        && let Some(row) = tx.one(MESSAGE_BY_KEY, args![id, key.as_str()]).await?
    {
        return read(&row).map(MessageSent::Existing);
    }
    if matches!(job.state(), JobState::Ended { .. }) {
        return Ok(MessageSent::Ended(job));
    }
    if jobs::is_cancel_requested(tx, &job).await? {
        return Ok(MessageSent::Cancelling);
    }
    let counts = tx.one(COUNT_JOB_MESSAGES, args![id]).await?;
    let count = |name| counts.as_ref().map_or(Ok(0), |row| row.get::<i64>(name));
    let (sent, waiting) = (count("sent")?, usize::try_from(count("waiting")?).unwrap_or(usize::MAX));
    if sent >= i64::from(MAX_STEERING_MESSAGES) {
        return Ok(MessageSent::TooMany);
    }
    if waiting.saturating_add(new.text.len()) > MAX_WAITING_MESSAGE_BYTES {
        return Ok(MessageSent::TooLarge);
    }
    let NewJobMessage { uuid, key, text, interrupt, route, .. } = new;
    let message = SteeringMessage {
        job: job.id().clone(),
        number: u32::try_from(sent + 1).unwrap_or(u32::MAX),
        uuid,
        key,
        text,
        interrupt,
        by: tx.actor.clone(),
        sent_at: now,
        route,
        state: SteeringState::Pending,
    };
    insert(tx, &message).await?;
    jobs::record(tx, &job, Fact::JobMessage { number: message.number, route, interrupt }, now);
    Ok(MessageSent::Sent(message))
}

async fn insert(tx: &mut Tx<'_>, message: &SteeringMessage) -> Result<(), StoreError> {
    let by = message.by.as_ref().map(jobs::to_json).transpose()?;
    let row = args![
        message.job.as_str(),
        message.number,
        message.uuid.to_string(),
        message.key.clone(),
        message.text.clone(),
        i64::try_from(message.text.len()).unwrap_or(i64::MAX),
        i64::from(message.interrupt),
        message.route.as_str(),
        by,
        message.sent_at,
    ];
    tx.execute(ADD_JOB_MESSAGE, row).await.map(drop)
}

/// Records that the last attempt of a job has these messages.
pub(super) async fn record_delivered(
    tx: &mut Tx<'_>,
    job: &Job,
    delivered: &[Uuid],
    now: Timestamp,
) -> Result<(), StoreError> {
    if delivered.is_empty() {
        return Ok(());
    }
    for message in waiting(tx, job.id()).await? {
        if delivered.contains(&message.uuid) {
            let state = SteeringState::Delivered { settled_at: now, attempt: job.attempts() };
            settle(tx, job, message.number, &state, now).await?;
        }
    }
    Ok(())
}

/// Drops the waiting messages of a job in the transaction that ends the job as cancelled.
pub(super) async fn drop_waiting(tx: &mut Tx<'_>, job: &Job, now: Timestamp) -> Result<(), StoreError> {
    for message in waiting(tx, job.id()).await? {
        settle(tx, job, message.number, &SteeringState::Dropped { settled_at: now }, now).await?;
    }
    Ok(())
}

/// Settles the waiting messages of a job if it ended with its attempt, in the transaction that ends it. They become the
/// prompt of a new job. The messages to a cancelled job are dropped, also if the job completed although its
/// cancellation was requested.
pub(super) async fn attempt_ended(
    tx: &mut Tx<'_>,
    job: &Job,
    is_cancelled: bool,
    random: fn() -> u64,
    now: Timestamp,
) -> Result<(), StoreError> {
    if !matches!(job.state(), JobState::Ended { .. }) {
        return Ok(());
    }
    if is_cancelled || job.status() == JobStatus::Cancelled {
        return drop_waiting(tx, job, now).await;
    }
    let waiting = waiting(tx, job.id()).await?;
    if waiting.is_empty() {
        return Ok(());
    }
    let next_job = add_next_turn(tx, job, &waiting, random, now).await?;
    let state = SteeringState::NextTurn { settled_at: now, next_job };
    for message in waiting {
        settle(tx, job, message.number, &state, now).await?;
    }
    Ok(())
}

/// Adds the job for the next turn: like a retry, but with the messages as its prompt. It works on no item, because the
/// result of the ended job is reported for the item. If the ended job answers a chat message, the new job answers it
/// too.
async fn add_next_turn(
    tx: &mut Tx<'_>,
    job: &Job,
    messages: &[SteeringMessage],
    random: fn() -> u64,
    now: Timestamp,
) -> Result<JobId, StoreError> {
    let row = jobs::stored_columns(tx, job.id()).await?;
    let row = row.ok_or_else(|| StoreError::NoJob(job.id().clone()))?;
    let schedule: Option<ScheduleId> = row.parse_opt("schedule_id")?;
    let new = NewJob {
        agent: job.agent().clone(),
        trigger_type: TriggerType::Manual,
        schedule: job.schedule().cloned(),
        prompt: Some(next_prompt(messages.iter().map(|message| message.text.as_str()))),
        origin: None,
        work_item: None,
        chat: job.chat().map(str::to_owned),
        message: job.message().cloned(),
        confined: job.confined().map(str::to_owned),
        not_before: None,
    };
    let answered = tx.one(ANSWERED_FIRING, args![job.id().as_str()]).await?;
    let answered: Option<FiringKey> =
        answered.map(|row| row.get("firing_key").map(FiringKey::stored)).transpose()?;
    // A job ends once, so this key is used once.
    let firing = answered.is_some().then(|| FiringKey::stored(format!("next_turn:{}", job.id())));
    let origin = jobs::JobOrigin { schedule, firing: firing.clone(), ..jobs::JobOrigin::default() };
    let next = jobs::add(tx, new, &origin, now, random).await?;
    if let (Some(schedule), Some(answered), Some(firing)) = (schedule, answered, firing) {
        let keys = || args![schedule, answered.as_str(), firing.as_str(), now];
        tx.execute(NEXT_ANSWER, keys()).await?;
        tx.execute(NEXT_FIRING, [keys(), args![next.id().as_str()]].concat()).await?;
    }
    workspaces::pass_on(tx, job.id(), next.id()).await?;
    jobs::record_created(tx, &next, now);
    Ok(next.id().clone())
}

async fn waiting(tx: &mut Tx<'_>, job: &JobId) -> Result<Vec<SteeringMessage>, StoreError> {
    tx.all(WAITING_MESSAGES_OF_JOB, args![job.as_str()]).await?.iter().map(read).collect()
}

async fn settle(
    tx: &mut Tx<'_>,
    job: &Job,
    number: u32,
    state: &SteeringState,
    now: Timestamp,
) -> Result<(), StoreError> {
    let (attempt, next_job) = match state {
        SteeringState::Delivered { attempt, .. } => (Some(*attempt), None),
        SteeringState::NextTurn { next_job, .. } => (None, Some(next_job.clone())),
        SteeringState::Pending | SteeringState::Dropped { .. } => (None, None),
    };
    let status = state.status();
    let row = args![
        job.id().as_str(),
        number,
        status.as_str(),
        now,
        attempt.map(i64::from),
        next_job.as_ref().map(JobId::as_str)
    ];
    tx.execute(SETTLE_MESSAGE, row).await?;
    jobs::record(tx, job, Fact::JobMessageSettled { number, status, attempt, next_job }, now);
    Ok(())
}

fn read(row: &Row) -> Result<SteeringMessage, StoreError> {
    let by: Option<Actor> = row.json_opt("actor")?;
    Ok(SteeringMessage {
        job: row.parse("job_id")?,
        number: row.count("number")?,
        uuid: row.parse("uuid")?,
        key: row.get("key")?,
        text: row.get("text")?,
        interrupt: row.get::<i64>("interrupt")? == 1,
        by,
        sent_at: row.time("sent_at")?,
        route: row.parse("route")?,
        state: state(row)?,
    })
}

fn state(row: &Row) -> Result<SteeringState, StoreError> {
    let status: SteeringStatus = row.parse("state")?;
    if status == SteeringStatus::Pending {
        return Ok(SteeringState::Pending);
    }
    let settled_at = row.time("settled_at")?;
    Ok(match status {
        SteeringStatus::Pending => SteeringState::Pending,
        SteeringStatus::Delivered => SteeringState::Delivered { settled_at, attempt: row.count("attempt")? },
        SteeringStatus::NextTurn => SteeringState::NextTurn { settled_at, next_job: row.parse("next_job")? },
        SteeringStatus::Dropped => SteeringState::Dropped { settled_at },
    })
}

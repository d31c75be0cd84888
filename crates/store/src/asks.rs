//! Asks: questions of running agents to people. An ask belongs to one attempt and ends with it.

use cowhand_core::ask::{Answered, Ask, AskAnswer, AskId, AskRefused, AskState, AskStatus, AskSubject};
use cowhand_core::event::Fact;
use cowhand_core::id::JobId;
use cowhand_core::job::{Job, JobState};
use cowhand_core::moment::Moment;
use jiff::Timestamp;

use super::database::db::{Row, Tx, args};
use super::database::dialect::statements;
use super::{Store, StoreError, jobs};

statements! {
    ASK_BY_KEY = same "select asks.*, jobs.agent, jobs.schedule from asks join jobs on jobs.id = asks.job_id \
        where asks.job_id = $1 and asks.attempt = $2 and asks.key = $3";
    ASK_BY_NUMBER = same "select asks.*, jobs.agent, jobs.schedule from asks join jobs on jobs.id = asks.job_id \
        where asks.job_id = $1 and asks.number = $2";
    OPEN_ASKS = same "select asks.*, jobs.agent, jobs.schedule from asks join jobs on jobs.id = asks.job_id \
        where asks.status = 'open' order by asks.asked_at, asks.job_id, asks.number limit $1";
    LAST_ASKS = same "select asks.*, jobs.agent, jobs.schedule from asks join jobs on jobs.id = asks.job_id \
        order by asks.asked_at desc, asks.job_id, asks.number desc limit $1";
    ASKS_OF_JOB = same "select asks.*, jobs.agent, jobs.schedule from asks join jobs on jobs.id = asks.job_id \
        where asks.job_id = $1 order by asks.number";
    COUNT_ASKS = same "select count(*) as made, coalesce(sum(case when status = 'open' then 1 else 0 end), 0) as waiting \
        from asks where job_id = $1";
    ADD_ASK = same "insert into asks (job_id, number, attempt, key, what, asked_at, expires_at, status, asked_boot) \
        values ($1, $2, $3, $4, $5, $6, $7, 'open', $8)";
    SAVE_ASK = same "update asks set status = $3, message = $4, actor = $5, answered_at = $6 \
        where job_id = $1 and number = $2 and status = 'open'";
    // There is no condition on the time, because the boot clock decides which asks are overdue.
    UNANSWERED_ASKS = same "select job_id, number, asked_at, asked_boot, expires_at from asks where status = 'open'";
}

/// Maximum number of unanswered asks of a job; further asks are refused.
const MAX_OPEN_ASKS: i64 = 50;
/// Maximum number of asks of a job.
const MAX_ASKS_PER_JOB: i64 = 10_000;

/// Result of making an ask.
#[derive(Debug, Clone, PartialEq)]
pub enum AskMade {
    /// The ask was made, or had been made before and may already be answered.
    Made(Ask),
    /// This attempt of the job does not run.
    NotRunning,
    TooMany,
}

/// Result of answering an ask.
#[derive(Debug, Clone, PartialEq)]
pub enum AskAnswered {
    Done(Ask),
    Refused(AskRefused),
    NoAsk,
}

impl Store {
    /// Makes an ask. A repeated call with the same key in the same attempt returns the ask of the first call.
    pub async fn make_ask(
        &self,
        job: JobId,
        attempt: u32,
        key: String,
        what: AskSubject,
        expires_at: Timestamp,
        now: Timestamp,
    ) -> Result<AskMade, StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                let job = jobs::lock(tx, &job).await?;
                if !matches!(job.state(), JobState::Running { .. }) || job.attempts() != attempt {
                    return Ok(AskMade::NotRunning);
                }
                let id = job.id().as_str();
                if let Some(row) = tx.one(ASK_BY_KEY, args![id, attempt, key.as_str()]).await? {
                    return read(&row, tx.call_time()).map(AskMade::Made);
                }
                let counts = tx.one(COUNT_ASKS, args![id]).await?;
                let count = |name| counts.as_ref().map_or(Ok(0), |row| row.get::<i64>(name));
                let (made, open) = (count("made")?, count("waiting")?);
                if open >= MAX_OPEN_ASKS || made >= MAX_ASKS_PER_JOB {
                    return Ok(AskMade::TooMany);
                }
                let number = u32::try_from(made + 1).unwrap_or(u32::MAX);
                let boot = tx.moment(now).boot;
                let row = args![id, number, attempt, key, jobs::to_json(&what)?, now, expires_at, boot];
                tx.execute(ADD_ASK, row).await?;
                let ask = AskId { job: job.id().clone(), number };
                jobs::record(
                    tx,
                    &job,
                    Fact::AskMade { ask: ask.clone(), about: what.label().to_owned() },
                    now,
                );
                let (agent, schedule) = (job.agent().clone(), job.schedule().cloned());
                Ok(AskMade::Made(Ask {
                    id: ask,
                    job: job.id().clone(),
                    agent,
                    schedule,
                    attempt,
                    what,
                    asked_at: now,
                    expires_at,
                    state: AskState::Open,
                }))
            })
        })
        .await
    }

    /// Answers an ask on behalf of the current actor.
    pub async fn answer_ask(
        &self,
        id: AskId,
        answer: AskAnswer,
        now: Timestamp,
    ) -> Result<AskAnswered, StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                let job = match jobs::lock(tx, &id.job).await {
                    Err(StoreError::NoJob(_)) => return Ok(AskAnswered::NoAsk),
                    job => job?,
                };
                let Some(mut ask) = get(tx, &id).await? else { return Ok(AskAnswered::NoAsk) };
                let by = tx.actor.clone();
                if let Err(refused) = ask.answer(answer, by, now) {
                    return Ok(AskAnswered::Refused(refused));
                }
                save(tx, &ask).await?;
                let fact = Fact::AskAnswered { ask: id, status: ask.state.status() };
                jobs::record(tx, &job, fact, now);
                Ok(AskAnswered::Done(ask))
            })
        })
        .await
    }

    pub async fn ask(&self, id: AskId) -> Result<Option<Ask>, StoreError> {
        self.read(move |tx| Box::pin(async move { get(tx, &id).await })).await
    }

    /// Returns at most `limit` open asks, the oldest first.
    pub async fn open_asks(&self, limit: u32) -> Result<Vec<Ask>, StoreError> {
        let rows = self.read(move |tx| Box::pin(async move { tx.all(OPEN_ASKS, args![limit]).await }));
        rows.await?.iter().map(|row| read(row, self.call_time())).collect()
    }

    /// Returns the last `limit` asks in any state, the newest first.
    pub async fn last_asks(&self, limit: u32) -> Result<Vec<Ask>, StoreError> {
        let rows = self.read(move |tx| Box::pin(async move { tx.all(LAST_ASKS, args![limit]).await }));
        rows.await?.iter().map(|row| read(row, self.call_time())).collect()
    }

    /// Returns the asks of a job in their order.
    pub async fn asks_of(&self, job: JobId) -> Result<Vec<Ask>, StoreError> {
        let rows =
            self.read(move |tx| Box::pin(async move { tx.all(ASKS_OF_JOB, args![job.as_str()]).await }));
        rows.await?.iter().map(|row| read(row, self.call_time())).collect()
    }

    /// Ends the asks that nobody answered in time.
    pub async fn expire_asks(&self, now: Timestamp) -> Result<(), StoreError> {
        let open = self.read(|tx| Box::pin(async move { tx.all(UNANSWERED_ASKS, args![]).await })).await?;
        for row in open {
            if times(&row, self.call_time())?.1 > now {
                continue;
            }
            let id = AskId { job: row.parse("job_id")?, number: row.count("number")? };
            self.write(move |tx| {
                Box::pin(async move {
                    let job = jobs::lock(tx, &id.job).await?;
                    let ask = get(tx, &id).await?;
                    let Some(mut ask) = ask.filter(|ask| ask.state == AskState::Open) else { return Ok(()) };
                    ask.state = AskState::Expired { answered_at: now };
                    close(tx, &job, &ask, now).await
                })
            })
            .await?;
        }
        Ok(())
    }
}

/// Ends the open asks of a job in the transaction that ends its attempt.
pub(super) async fn attempt_ended(tx: &mut Tx<'_>, job: &Job, now: Timestamp) -> Result<(), StoreError> {
    for row in tx.all(ASKS_OF_JOB, args![job.id().as_str()]).await? {
        let ask = read(&row, tx.call_time())?;
        if ask.state != AskState::Open {
            continue;
        }
        // An ask whose time has passed, for example while no daemon ran, was shown as expired and stays expired.
        let mut ask = ask.seen_at(now);
        if ask.state == AskState::Open {
            ask.state = AskState::Ended { answered_at: now };
        }
        close(tx, job, &ask, now).await?;
    }
    Ok(())
}

/// Saves an ask that ends without an answer, and records the event.
async fn close(tx: &mut Tx<'_>, job: &Job, ask: &Ask, now: Timestamp) -> Result<(), StoreError> {
    save(tx, ask).await?;
    // An expiry has no actor, even if the request of an actor was the first to notice it.
    if matches!(ask.state, AskState::Expired { .. }) {
        tx.actor = None;
    }
    let fact = Fact::AskExpired { ask: ask.id.clone(), status: ask.state.status() };
    jobs::record(tx, job, fact, now);
    Ok(())
}

async fn get(tx: &mut Tx<'_>, id: &AskId) -> Result<Option<Ask>, StoreError> {
    let row = tx.one(ASK_BY_NUMBER, args![id.job.as_str(), id.number]).await?;
    row.as_ref().map(|row| read(row, tx.call_time())).transpose()
}

async fn save(tx: &mut Tx<'_>, ask: &Ask) -> Result<(), StoreError> {
    let (message, by, at) = match &ask.state {
        AskState::Open => (None, None, None),
        AskState::Allowed(answered) | AskState::Denied(answered) | AskState::Answered(answered) => {
            (answered.message.clone(), answered.by.as_ref(), Some(answered.answered_at))
        }
        AskState::Expired { answered_at } | AskState::Ended { answered_at } => {
            (None, None, Some(*answered_at))
        }
    };
    let by = by.map(jobs::to_json).transpose()?;
    let row = args![ask.id.job.as_str(), ask.id.number, ask.state.status().as_str(), message, by, at];
    tx.execute(SAVE_ASK, row).await.map(drop)
}

/// Returns the time of an ask and the time of its expiry, by the wall clock as it is set at `call_time`. Without a
/// `call_time`, the stored times are returned.
fn times(row: &Row, call_time: Option<Moment>) -> Result<(Timestamp, Timestamp), StoreError> {
    let (asked_at, expires_at) = (row.time("asked_at")?, row.time("expires_at")?);
    let Some(call_time) = call_time else { return Ok((asked_at, expires_at)) };
    let asked = Moment { wall: asked_at, boot: row.parse_opt("asked_boot")? }.on_clock_of(call_time);
    let expires = asked.checked_add(expires_at.duration_since(asked_at)).unwrap_or(Timestamp::MAX);
    Ok((asked, expires))
}

fn read(row: &Row, call_time: Option<Moment>) -> Result<Ask, StoreError> {
    let (asked_at, expires_at) = times(row, call_time)?;
    let job: JobId = row.parse("job_id")?;
    let id = AskId { job: job.clone(), number: row.count("number")? };
    let what: Option<AskSubject> = row.json_opt("what")?;
    Ok(Ask {
        id,
        job,
        agent: row.parse("agent")?,
        schedule: row.parse_opt("schedule")?,
        attempt: row.count("attempt")?,
        what: what.ok_or_else(|| row.unreadable("what", ""))?,
        asked_at,
        expires_at,
        state: state(row)?,
    })
}

fn state(row: &Row) -> Result<AskState, StoreError> {
    let status: AskStatus = row.parse("status")?;
    if status == AskStatus::Open {
        return Ok(AskState::Open);
    }
    let answered_at = row.time("answered_at")?;
    let answered = || -> Result<Answered, StoreError> {
        Ok(Answered { answered_at, by: row.json_opt("actor")?, message: row.get("message")? })
    };
    Ok(match status {
        AskStatus::Open => AskState::Open,
        AskStatus::Allowed => AskState::Allowed(answered()?),
        AskStatus::Denied => AskState::Denied(answered()?),
        AskStatus::Answered => AskState::Answered(answered()?),
        AskStatus::Expired => AskState::Expired { answered_at },
        AskStatus::Ended => AskState::Ended { answered_at },
    })
}

//! Cursors: how far a schedule that lives by events has come in the log.

use cowhand_core::event::Fact;
use cowhand_core::id::{AgentName, JobId, ScheduleId};
use cowhand_core::roster::Schedule;
use cowhand_core::trigger::FiringKey;
use jiff::Timestamp;

use super::database::db::{Tx, args};
use super::database::dialect::statements;
use super::database::event_log::{self, Recorded};
use super::{Store, StoreError, sessions};

statements! {
    GET_CURSOR = same "select seq from cursors where schedule_id = $1";
    SET_CURSOR = same "insert into cursors (schedule_id, seq) values ($1, $2) \
        on conflict (schedule_id) do update set seq = excluded.seq";
    ADVANCE_CURSOR = same "update cursors set seq = $2 where schedule_id = $1 and seq < $2";
    MOVE_CURSOR = same "update cursors set schedule_id = $2 where schedule_id = $1";
    DROP_CURSOR = same "delete from cursors where schedule_id = $1";
    MADE_BY = same "select key from firings where job_id = $1";
    JOB_OF_EVENT = same "select job_id from events where seq = $1";
}

impl Store {
    /// The last event that it is done with; none if it does not live by events.
    pub async fn cursor(&self, schedule: ScheduleId) -> Result<Option<i64>, StoreError> {
        self.read(move |tx| {
            Box::pin(async move {
                tx.one(GET_CURSOR, args![schedule]).await?.map(|row| row.get("seq")).transpose()
            })
        })
        .await
    }

    /// Nothing up to here was for it. Firings move the cursor on themselves; this only saves reading the rest again.
    pub async fn pass_events(&self, schedule: ScheduleId, seq: i64) -> Result<(), StoreError> {
        self.write(move |tx| Box::pin(advance(tx, schedule, seq))).await
    }

    /// How many firings by events stand one behind the other before this job, at most `limit`.
    pub async fn chain_length(&self, job: JobId, limit: u32) -> Result<u32, StoreError> {
        self.read(move |tx| {
            Box::pin(async move {
                let (mut job, mut length) = (Some(job.as_str().to_owned()), 0);
                while let Some(made) = job.take().filter(|_| length < limit) {
                    let Some(row) = tx.one(MADE_BY, args![made]).await? else { break };
                    let Some(seq) = FiringKey::stored(row.get("key")?).event() else { break };
                    length += 1;
                    let row = tx.one(JOB_OF_EVENT, args![seq]).await?;
                    job = row.map_or(Ok(None), |row| row.get("job_id"))?;
                }
                Ok(length)
            })
        })
        .await
    }

    /// Somebody wants the agent to begin anew.
    pub async fn clear_agent(&self, agent: AgentName, now: Timestamp) -> Result<(), StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                sessions::forget_all(tx, &agent).await?;
                tx.record(Recorded {
                    at: now,
                    agent: Some(agent),
                    schedule: None,
                    job: None,
                    fact: Fact::AgentCleared,
                });
                Ok(())
            })
        })
        .await
    }
}

/// What happened before it was armed is none of its business.
pub(super) async fn arm(tx: &mut Tx<'_>, schedule: ScheduleId) -> Result<(), StoreError> {
    let last = event_log::last(tx).await?;
    tx.execute(SET_CURSOR, args![schedule, last]).await?;
    Ok(())
}

/// Loaded as it was. While the file has it off nothing is kept for it; turned on there, it begins now.
pub(super) async fn keep(tx: &mut Tx<'_>, schedule: &Schedule) -> Result<(), StoreError> {
    if !schedule.enabled {
        forget(tx, schedule.id).await?;
    } else if tx.one(GET_CURSOR, args![schedule.id]).await?.is_none() {
        arm(tx, schedule.id).await?;
    }
    Ok(())
}

/// Another schedule goes on where this one was.
pub(super) async fn hand_over(tx: &mut Tx<'_>, from: ScheduleId, to: ScheduleId) -> Result<(), StoreError> {
    forget(tx, to).await?;
    tx.execute(MOVE_CURSOR, args![from, to]).await?;
    Ok(())
}

pub(super) async fn forget(tx: &mut Tx<'_>, schedule: ScheduleId) -> Result<(), StoreError> {
    tx.execute(DROP_CURSOR, args![schedule]).await?;
    Ok(())
}

/// In the transaction of the firing that the event led to.
pub(super) async fn advance(tx: &mut Tx<'_>, schedule: ScheduleId, seq: i64) -> Result<(), StoreError> {
    tx.execute(ADVANCE_CURSOR, args![schedule, seq]).await?;
    Ok(())
}

//! Cursors: the position of an event schedule in the event log.

use cowhand_core::id::{JobId, ScheduleId};
use cowhand_core::roster::Schedule;
use cowhand_core::trigger::FiringKey;

use super::database::db::{Tx, args};
use super::database::dialect::statements;
use super::database::event_log;
use super::{Store, StoreError};

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
    /// Returns the number of the last event that the schedule has processed; `None` if the schedule does not follow
    /// events or is disabled in the config.
    pub async fn cursor(&self, schedule: ScheduleId) -> Result<Option<i64>, StoreError> {
        self.read(move |tx| {
            Box::pin(async move {
                tx.one(GET_CURSOR, args![schedule]).await?.map(|row| row.get("seq")).transpose()
            })
        })
        .await
    }

    /// Moves the cursor past events that do not concern the schedule, so that they are not read again. A firing moves
    /// the cursor in its own transaction and does not need this verb.
    pub async fn pass_events(&self, schedule: ScheduleId, seq: i64) -> Result<(), StoreError> {
        self.write(move |tx| Box::pin(advance(tx, schedule, seq))).await
    }

    /// Counts the event firings that led to this job. The first is the firing that made this job, if an event caused
    /// that firing. The next is the firing that made the job to which this event belongs, and so on. Stops at `limit`.
    pub async fn triggered_in_a_row(&self, job: JobId, limit: u32) -> Result<u32, StoreError> {
        self.read(move |tx| {
            Box::pin(async move {
                let (mut job, mut length) = (Some(job.as_str().to_owned()), 0);
                while let Some(job_id) = job.take().filter(|_| length < limit) {
                    let Some(row) = tx.one(MADE_BY, args![job_id]).await? else { break };
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
}

/// Sets the cursor to the end of the log, because events before the schedule was armed do not count.
pub(super) async fn arm(tx: &mut Tx<'_>, schedule: ScheduleId) -> Result<(), StoreError> {
    let last = event_log::last(tx).await?;
    tx.execute(SET_CURSOR, args![schedule, last]).await?;
    Ok(())
}

/// Keeps the cursor when a schedule is loaded unchanged. A schedule that the config disables has no cursor. When the
/// config enables the schedule again, its new cursor starts at the end of the log.
pub(super) async fn keep(tx: &mut Tx<'_>, schedule: &Schedule) -> Result<(), StoreError> {
    if !schedule.enabled {
        forget(tx, schedule.id).await?;
    } else if tx.one(GET_CURSOR, args![schedule.id]).await?.is_none() {
        arm(tx, schedule.id).await?;
    }
    Ok(())
}

/// Moves the cursor to another schedule. That schedule loses its own cursor, even if there is no cursor to move.
pub(super) async fn hand_over(tx: &mut Tx<'_>, from: ScheduleId, to: ScheduleId) -> Result<(), StoreError> {
    forget(tx, to).await?;
    tx.execute(MOVE_CURSOR, args![from, to]).await?;
    Ok(())
}

pub(super) async fn forget(tx: &mut Tx<'_>, schedule: ScheduleId) -> Result<(), StoreError> {
    tx.execute(DROP_CURSOR, args![schedule]).await?;
    Ok(())
}

/// Moves the cursor forward to this event. A firing that the event causes moves the cursor in its own transaction.
pub(super) async fn advance(tx: &mut Tx<'_>, schedule: ScheduleId, seq: i64) -> Result<(), StoreError> {
    tx.execute(ADVANCE_CURSOR, args![schedule, seq]).await?;
    Ok(())
}

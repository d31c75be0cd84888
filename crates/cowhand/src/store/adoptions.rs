//! Adoptions: what was done under a schedule's former name becomes its own, so that a new name fires nothing again.

use cowhand_core::event::Fact;
use cowhand_core::id::ScheduleId;
use cowhand_core::roster::{Former, Roster};
use cowhand_core::schedule::ScheduleRecord;
use jiff::Timestamp;

use super::db::{Tx, args};
use super::dialect::statements;
use super::{Store, StoreError, schedules};

statements! {
    HAS_FIRED = same "select key from firings where schedule_id = $1 limit 1";
    DROP_CURSOR = same "delete from cursors where schedule_id = $1";
    MOVE_CURSOR = same "update cursors set schedule_id = $2 where schedule_id = $1";
    // What both have done counts once.
    MOVE_FIRINGS = same "update firings set schedule_id = $2 where schedule_id = $1 \
        and key not in (select key from firings where schedule_id = $2)";
    DROP_FIRINGS = same "delete from firings where schedule_id = $1";
    MOVE_SIGHTINGS = same "update sightings set schedule_id = $2 where schedule_id = $1 \
        and item not in (select item from sightings where schedule_id = $2)";
    DROP_SIGHTINGS = same "delete from sightings where schedule_id = $1";
    MOVE_JOBS = same "update jobs set schedule_id = $2 where schedule_id = $1";
    // Also those that are only called after it: retries and follow-ups.
    RENAME_JOBS = same "update jobs set schedule = $3 where agent = $1 and schedule = $2";
    RENAME_ITEMS = same "update items set schedule = $3 where agent = $1 and schedule = $2";
    DROP_SCHEDULE = same "delete from schedules where id = $1";
}

impl Store {
    /// Each in a transaction of its own: `load_schedules` locks in another order.
    pub(super) async fn adopt_former(&self, roster: &Roster, now: Timestamp) -> Result<(), StoreError> {
        for agent in &roster.agents {
            for schedule in &agent.schedules {
                let Some(former) = schedule.adopts.clone() else { continue };
                // Done already, as a rule.
                if self.schedule(former.id()).await?.is_none() {
                    continue;
                }
                let new = ScheduleRecord::new(&agent.name, schedule, now);
                self.write(move |tx| Box::pin(adopt(tx, former, new, now))).await?;
            }
        }
        Ok(())
    }
}

/// One that has fired by now stays as it is; one that has not takes over all that there is.
async fn adopt(
    tx: &mut Tx<'_>,
    former: Former,
    new: ScheduleRecord,
    now: Timestamp,
) -> Result<(), StoreError> {
    let Some(old) = schedules::lock_opt(tx, former.id()).await? else { return Ok(()) };
    schedules::add(tx, &new).await?;
    let mut heir = schedules::lock(tx, new.id).await?;
    let (from, to) = (old.id, new.id);
    if tx.one(HAS_FIRED, args![to]).await?.is_none() {
        heir = ScheduleRecord { id: heir.id, agent: heir.agent, name: heir.name, ..old };
        schedules::save(tx, &heir).await?;
        tx.execute(DROP_CURSOR, args![to]).await?;
        tx.execute(MOVE_CURSOR, args![from, to]).await?;
    }
    hand_over(tx, from, to).await?;
    // Jobs stay with their agent, and so under its name for the schedule.
    if former.agent == heir.agent {
        let names = || args![former.agent.as_str(), former.name.as_str(), heir.name.as_str()];
        tx.execute(RENAME_JOBS, names()).await?;
        tx.execute(RENAME_ITEMS, names()).await?;
    }
    tx.execute(DROP_SCHEDULE, args![from]).await?;
    schedules::record(tx, &heir, Fact::ScheduleAdopted { former: former.to_string() }, now);
    Ok(())
}

async fn hand_over(tx: &mut Tx<'_>, from: ScheduleId, to: ScheduleId) -> Result<(), StoreError> {
    for taken in [MOVE_FIRINGS, MOVE_SIGHTINGS, MOVE_JOBS] {
        tx.execute(taken, args![from, to]).await?;
    }
    for left in [DROP_FIRINGS, DROP_SIGHTINGS, DROP_CURSOR] {
        tx.execute(left, args![from]).await?;
    }
    Ok(())
}

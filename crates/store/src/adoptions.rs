//! Adoptions: the history of a schedule's former name moves to its new name, so that a renamed schedule does not fire
//! again for occurrences that have fired under the former name.

use std::collections::HashSet;
use std::fmt;

use cowhand_core::event::Fact;
use cowhand_core::id::{AgentName, ScheduleId, ScheduleName};
use cowhand_core::job::Job;
use cowhand_core::moment::Moment;
use cowhand_core::roster::{FormerName, Roster};
use cowhand_core::schedule::{ScheduleRecord, ScheduleState};
use jiff::Timestamp;

use super::database::db::{Arg, Tx, args};
use super::database::dialect::statements;
use super::events::read_event;
use super::{Store, StoreError, cursors, jobs, schedules};

statements! {
    HAS_FIRED = same "select key from firings where schedule_id = $1 and key not like 'manual:%' limit 1";
    ADOPTED = same "select seq, at, agent, schedule, job_id, data, actor from events \
        where type = 'schedule:adopted' and agent = $1 and schedule = $2";
    LOCK_JOBS = locked "select id from jobs where schedule_id = $1 or (agent = $2 and schedule = $3) order by number";
    // If both schedules have a firing with the same key, only the firing of the new schedule stays.
    MOVE_FIRINGS = same "update firings set schedule_id = $2 where schedule_id = $1 \
        and key not in (select key from firings where schedule_id = $2)";
    DROP_FIRINGS = same "delete from firings where schedule_id = $1";
    // Without this statement, an item that comes back would get a key that one of the schedules has already used.
    RAISE_SIGHTINGS = same "update sightings set generation = (select former.generation from sightings former \
        where former.schedule_id = $1 and former.item = sightings.item) \
        where schedule_id = $2 and exists (select 1 from sightings former where former.schedule_id = $1 \
        and former.item = sightings.item and former.generation > sightings.generation)";
    MOVE_SIGHTINGS = same "update sightings set schedule_id = $2 where schedule_id = $1 \
        and item not in (select item from sightings where schedule_id = $2)";
    DROP_SIGHTINGS = same "delete from sightings where schedule_id = $1";
    // Running jobs of another agent keep their agent. The interval of the new schedule counts from their end, and the
    // new schedule does not run beside them.
    MOVE_JOBS = same "update jobs set schedule_id = $2 where schedule_id = $1 and (agent = $3 or status = 'running')";
    // The other jobs of another agent must not block the new schedule: they may wait for their agent forever.
    FREE_JOBS = same "update jobs set schedule_id = null where schedule_id = $1";
    FREE_JOB = same "update jobs set schedule_id = null where id = $1";
    // This also renames jobs that have only the name of the schedule: retries and follow-ups.
    RENAME_JOBS = same "update jobs set schedule = $3 where agent = $1 and schedule = $2";
    RENAME_ITEMS = same "update items set schedule = $3 where agent = $1 and schedule = $2";
    DROP_SCHEDULE = same "delete from schedules where id = $1";
}

impl Store {
    /// Returns true if the schedule has fired by its trigger, not only by hand.
    pub(super) async fn has_fired(&self, schedule: ScheduleId) -> Result<bool, StoreError> {
        self.read(move |tx| Box::pin(async move { Ok(tx.one(HAS_FIRED, args![schedule]).await?.is_some()) }))
            .await
    }

    /// Returns the schedules of the roster whose former schedule is not in the store, unless they adopted it earlier. A
    /// store without schedules is new and has no history, so the result is empty.
    pub async fn empty_adoptions(&self, roster: &Roster) -> Result<Vec<EmptyAdoption>, StoreError> {
        if roster.agents.iter().flat_map(|agent| &agent.schedules).all(|schedule| schedule.adopts.is_none()) {
            return Ok(Vec::new());
        }
        let known: HashSet<ScheduleId> = self.schedules().await?.iter().map(|record| record.id).collect();
        let mut empty = Vec::new();
        for agent in roster.agents.iter().filter(|_| !known.is_empty()) {
            for schedule in &agent.schedules {
                let Some(former) = schedule.adopts.clone().filter(|former| !known.contains(&former.id()))
                else {
                    continue;
                };
                let adoption =
                    EmptyAdoption { agent: agent.name.clone(), schedule: schedule.name.clone(), former };
                if !self.was_adopted(adoption.clone()).await? {
                    empty.push(adoption);
                }
            }
        }
        Ok(empty)
    }

    /// Checks whether the schedule has adopted the former schedule earlier.
    pub(super) async fn was_adopted(&self, adoption: EmptyAdoption) -> Result<bool, StoreError> {
        self.read(move |tx| {
            Box::pin(async move {
                let EmptyAdoption { agent, schedule, former } = &adoption;
                has_adopted(tx, (agent, schedule), former).await
            })
        })
        .await
    }
}

/// Checks whether an event records that the schedule has adopted the former schedule.
async fn has_adopted(
    tx: &mut Tx<'_>,
    (agent, schedule): (&AgentName, &ScheduleName),
    former: &FormerName,
) -> Result<bool, StoreError> {
    let adopted = Fact::ScheduleAdopted { former: former.to_string() };
    let rows = tx.all(ADOPTED, args![agent.as_str(), schedule.as_str()]).await?;
    let events: Vec<_> = rows.iter().map(read_event).collect::<Result<_, _>>()?;
    Ok(events.iter().any(|event| event.fact == adopted))
}

/// A schedule that took over nothing, because the store does not know the former name that its `adopt` states. The name
/// may be misspelt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmptyAdoption {
    pub agent: AgentName,
    pub schedule: ScheduleName,
    pub former: FormerName,
}

impl fmt::Display for EmptyAdoption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { agent, schedule, former } = self;
        write!(
            f,
            "{agent}/{schedule} took over no history: its `adopt` names {former}, which the store does not know"
        )
    }
}

/// Adopts every former schedule that the roster names and that exists.
pub(super) async fn adopt_all(tx: &mut Tx<'_>, roster: &Roster, now: Timestamp) -> Result<(), StoreError> {
    let (mut adoptions, mut left) = (Vec::new(), Vec::new());
    for agent in &roster.agents {
        for schedule in &agent.schedules {
            let Some(former) = &schedule.adopts else { continue };
            let new = ScheduleRecord::new(&agent.name, schedule, now);
            // The former schedule has usually been adopted already.
            if schedules::get(tx, former.id()).await?.is_some() {
                adoptions.push((former, new));
            } else if let Some(names) = rename_args(former, &new)
                && !has_adopted(tx, (&new.agent, &new.name), former).await?
            {
                left.push((former, new, names));
            }
        }
    }
    // A schedule of another agent has adopted the former schedule, but the jobs stayed with their agent.
    for (former, new, names) in left {
        let jobs = tx.execute(RENAME_JOBS, names.clone()).await?;
        if jobs + tx.execute(RENAME_ITEMS, names).await? > 0 {
            schedules::record(tx, &new, Fact::ScheduleAdopted { former: former.to_string() }, now);
        }
    }
    if adoptions.is_empty() {
        return Ok(());
    }
    for (former, new) in &adoptions {
        let names = args![former.id(), former.agent.as_str(), former.name.as_str()];
        tx.all(LOCK_JOBS, names).await?;
        if let Some(names) = rename_args(former, new) {
            tx.execute(RENAME_ITEMS, names).await?;
        }
    }
    let current_ids = roster.agents.iter().flat_map(|agent| &agent.schedules).map(|schedule| schedule.id);
    let mut ids: Vec<ScheduleId> =
        current_ids.chain(adoptions.iter().map(|(former, _)| former.id())).collect();
    ids.sort_unstable();
    for id in ids {
        schedules::lock_opt(tx, id).await?;
    }
    for (former, new) in adoptions {
        adopt(tx, former, new, now).await?;
    }
    Ok(())
}

/// Returns the arguments that rename jobs and items; `None` if the schedule moves to another agent. In that case, jobs
/// and items keep the old name.
fn rename_args(former: &FormerName, new: &ScheduleRecord) -> Option<Vec<Arg>> {
    (former.agent == new.agent).then(|| args![former.agent.as_str(), former.name.as_str(), new.name.as_str()])
}

async fn adopt(
    tx: &mut Tx<'_>,
    former: &FormerName,
    new: ScheduleRecord,
    now: Timestamp,
) -> Result<(), StoreError> {
    let Some(old) = schedules::lock_opt(tx, former.id()).await? else { return Ok(()) };
    schedules::add(tx, &new).await?;
    let current = schedules::lock(tx, new.id).await?;
    let (from, to) = (old.id, new.id);
    let has_fired = tx.one(HAS_FIRED, args![to]).await?.is_some();
    if !has_fired {
        cursors::hand_over(tx, from, to).await?;
    }
    let merged = merge(old, current, has_fired);
    schedules::save(tx, &merged).await?;
    hand_over(tx, from, to, &merged.agent).await?;
    if let Some(names) = rename_args(former, &merged) {
        tx.execute(RENAME_JOBS, names).await?;
    }
    tx.execute(DROP_SCHEDULE, args![from]).await?;
    schedules::record(tx, &merged, Fact::ScheduleAdopted { former: former.to_string() }, now);
    Ok(())
}

/// Removes a job from its schedule if the schedule belongs to another agent. Such a schedule adopted the job's own
/// schedule while the job ran. The job may wait for its next attempt forever, so the schedule must not wait for the
/// job. If a trigger fired the job, the interval of the schedule counts from `ended`, the end of the job's attempt. The
/// caller holds the lock of the job.
pub(super) async fn free_waiting_job(tx: &mut Tx<'_>, job: &Job, ended: Moment) -> Result<(), StoreError> {
    let Some(row) = jobs::stored_columns(tx, job.id()).await? else { return Ok(()) };
    let Some(id) = row.parse_opt::<ScheduleId>("schedule_id")? else { return Ok(()) };
    let is_of_another_agent = |record: ScheduleRecord| record.agent != *job.agent();
    if !schedules::get(tx, id).await?.is_some_and(is_of_another_agent) {
        return Ok(());
    }
    tx.execute(FREE_JOB, args![job.id().as_str()]).await?;
    if row.get::<i64>("by_trigger")? == 1 {
        let mut schedule = schedules::lock(tx, id).await?;
        schedule.count_from(ended);
        schedules::save(tx, &schedule).await?;
    }
    Ok(())
}

/// Returns the record of the adopting schedule. An adopting schedule that has not fired yet takes over the former
/// record. Otherwise it continues after the latest occurrence of both schedules. A schedule in the state `error`
/// becomes active again.
fn merge(old: ScheduleRecord, current: ScheduleRecord, has_fired: bool) -> ScheduleRecord {
    let mut merged = if has_fired {
        ScheduleRecord {
            generation: current.generation.max(old.generation),
            interval_count: current.interval_count.max(old.interval_count),
            fill_count: current.fill_count.max(old.fill_count),
            last_due: current.last_due.max(old.last_due),
            last_run_at: current.last_run_at.max(old.last_run_at),
            interval_from: later(current.interval_from, old.interval_from),
            ..current
        }
    } else {
        ScheduleRecord { id: current.id, agent: current.agent, name: current.name, ..old }
    };
    if matches!(merged.state, ScheduleState::Error { .. }) {
        merged.state = ScheduleState::Active;
    }
    merged
}

fn later(one: Option<Moment>, other: Option<Moment>) -> Option<Moment> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if other.since(one).is_positive() { other } else { one }),
        (one, other) => one.or(other),
    }
}

/// Moves firings, sightings and jobs to the new schedule. Firings and sightings that the new schedule already has are
/// removed, and so is the cursor of the former schedule. Jobs of another agent that do not run get no schedule.
async fn hand_over(
    tx: &mut Tx<'_>,
    from: ScheduleId,
    to: ScheduleId,
    agent: &AgentName,
) -> Result<(), StoreError> {
    tx.execute(MOVE_JOBS, args![from, to, agent.as_str()]).await?;
    for statement in [MOVE_FIRINGS, RAISE_SIGHTINGS, MOVE_SIGHTINGS] {
        tx.execute(statement, args![from, to]).await?;
    }
    for statement in [FREE_JOBS, DROP_FIRINGS, DROP_SIGHTINGS] {
        tx.execute(statement, args![from]).await?;
    }
    cursors::forget(tx, from).await
}

//! Schedules: their rows, and the verbs that change their state.

use std::collections::HashMap;

use cowhand_core::breaker::BreakerState;
use cowhand_core::event::Fact;
use cowhand_core::id::ScheduleId;
use cowhand_core::moment::Moment;
use cowhand_core::roster::Schedule;
use cowhand_core::schedule::{DisabledBy, ScheduleRecord, ScheduleState, SkipReason, WaitingFiring};
use jiff::Timestamp;

use super::database::db::{Arg, Row, Tx, args};
use super::database::dialect::statements;
use super::database::event_log::NewEvent;
use super::{Store, StoreError, cursors, jobs};

statements! {
    ALL_SCHEDULES = same "select * from schedules order by agent, name";
    LOADED_SCHEDULES = same "select id, trigger_config, state, absent_since, trigger_error, paused_until from schedules";
    SCHEDULES_OF_IDS =
        sqlite "select * from schedules where id in (select value from json_each($1))"
        postgres "select * from schedules where id = any (array(select json_array_elements_text(($1::text)::json)))";
    GET_SCHEDULE = same "select * from schedules where id = $1";
    LOCK_SCHEDULE = locked "select * from schedules where id = $1";
    ADD_SCHEDULE = same "insert into schedules (id, agent, name, trigger_config, state, state_why, run_at, generation, \
        armed_at, interval_count, last_due, last_run_at, last_error, waiting_due, waiting_reason, fuse, \
        paused_until, polled_at, fill, fill_count, counted_from, counted_boot, pause_boot, finished, run_error, replay_until, \
        polled_boot, absent_since, trigger_error) values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, \
        $23, $24, $25, $26, $27, $28, $29) on conflict (id) do nothing";
    REQUEST_FILL = same "update schedules set fill = 1 where id = $1";
    SAVE_SCHEDULE = same "update schedules set agent = $2, name = $3, trigger_config = $4, state = $5, state_why = $6, \
        run_at = $7, generation = $8, armed_at = $9, interval_count = $10, last_due = $11, last_run_at = $12, \
        last_error = $13, waiting_due = $14, waiting_reason = $15, fuse = $16, paused_until = $17, \
        polled_at = $18, fill = $19, fill_count = $20, counted_from = $21, counted_boot = $22, pause_boot = $23, \
        finished = $24, run_error = $25, replay_until = $26, polled_boot = $27, absent_since = $28, trigger_error = $29 \
        where id = $1";
}

impl Store {
    pub async fn schedule(&self, id: ScheduleId) -> Result<Option<ScheduleRecord>, StoreError> {
        self.read(move |tx| Box::pin(get(tx, id))).await
    }

    pub async fn schedules(&self) -> Result<Vec<ScheduleRecord>, StoreError> {
        self.read(|tx| Box::pin(all(tx))).await
    }

    /// Enables a schedule that is disabled, paused or in the state `error`, or ends the need for a probe after a pause.
    /// Returns whether something has changed.
    pub async fn enable(&self, id: ScheduleId, now: Timestamp) -> Result<bool, StoreError> {
        self.change(id, now, |schedule, now| schedule.enable(now).then_some(Fact::ScheduleEnabled)).await
    }

    /// Disables a schedule and returns whether its state has changed.
    pub async fn disable(&self, id: ScheduleId, why: DisabledBy, now: Timestamp) -> Result<bool, StoreError> {
        self.change(id, now, move |schedule, _| {
            schedule.disable(why).then_some(Fact::ScheduleDisabled { why })
        })
        .await
    }

    /// Records that the trigger of a schedule cannot continue, and returns whether the schedule was active.
    pub async fn fail_schedule(
        &self,
        id: ScheduleId,
        reason: String,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        self.change(id, now, move |schedule, _| {
            let failed = schedule.fail(&reason);
            if failed {
                schedule.record_trigger_error(Some(reason.clone()), now);
            }
            failed.then_some(Fact::ScheduleError { reason })
        })
        .await
    }

    /// Records an error of the trigger of a schedule, or with `None` that the trigger has answered. Only the first
    /// error after an answer is recorded as an event.
    pub async fn record_trigger_error(
        &self,
        id: ScheduleId,
        error: Option<String>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                let mut schedule = lock(tx, id).await?;
                let is_first = schedule.trigger_error.is_none();
                if !schedule.record_trigger_error(error.clone(), now) {
                    return Ok(());
                }
                save(tx, &schedule).await?;
                if let Some(message) = error.filter(|_| is_first) {
                    record(tx, &schedule, Fact::ScheduleDelayed { message }, now);
                }
                Ok(())
            })
        })
        .await
    }

    /// Ends the pause of a schedule if its time has passed, and returns whether it ended. A schedule that was disabled
    /// during the pause stays disabled, and no event is recorded.
    pub async fn resume(&self, id: ScheduleId, now: Timestamp) -> Result<bool, StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                let mut schedule = lock(tx, id).await?;
                let was_paused = schedule.resume(tx.moment(now));
                if was_paused {
                    save(tx, &schedule).await?;
                }
                if was_paused && schedule.state == ScheduleState::Active {
                    record(tx, &schedule, Fact::ScheduleResumed, now);
                }
                Ok(was_paused)
            })
        })
        .await
    }

    /// Finishes a schedule that has no further due time, and returns whether it was active.
    pub async fn finish(&self, id: ScheduleId, now: Timestamp) -> Result<bool, StoreError> {
        self.change(id, now, |schedule, _| schedule.finish().then_some(Fact::ScheduleFinished)).await
    }

    /// Reopens a schedule whose `end_at` is in the future again, and returns whether it had finished.
    pub async fn reopen(&self, id: ScheduleId, now: Timestamp) -> Result<bool, StoreError> {
        self.change(id, now, |schedule, now| schedule.reopen(now.wall).then_some(Fact::ScheduleArmed)).await
    }

    /// Moves stored times of a schedule to now if they are in the future, because the wall clock was set back. Returns
    /// whether the schedule had such times.
    pub async fn restart_from_now(&self, id: ScheduleId, now: Timestamp) -> Result<bool, StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                let mut schedule = lock(tx, id).await?;
                let had_future_times = schedule.restart_from_now(tx.moment(now));
                if had_future_times {
                    save(tx, &schedule).await?;
                }
                Ok(had_future_times)
            })
        })
        .await
    }

    /// Records the reason why a schedule cannot fire at present, once for each new reason; `None` removes the reason.
    pub async fn record_delay(
        &self,
        id: ScheduleId,
        reason: Option<String>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                let mut schedule = lock(tx, id).await?;
                if !schedule.record_error(reason.clone()) {
                    return Ok(());
                }
                save(tx, &schedule).await?;
                if let Some(message) = reason {
                    let (agent, name) = (schedule.agent, Some(schedule.name));
                    let fact = Fact::ScheduleDelayed { message };
                    tx.record(NewEvent { at: now, agent: Some(agent), schedule: name, job: None, fact });
                }
                Ok(())
            })
        })
        .await
    }

    /// Makes these schedules look for work as soon as their agents have a free place.
    pub async fn request_fill(&self, mut schedules: Vec<ScheduleId>) -> Result<(), StoreError> {
        // A fixed order of the row locks prevents deadlocks.
        schedules.sort_unstable();
        self.write(move |tx| {
            Box::pin(async move {
                for id in schedules {
                    tx.execute(REQUEST_FILL, args![id]).await?;
                }
                Ok(())
            })
        })
        .await
    }

    /// Records that a schedule is due but has to wait, once for each new reason. The earliest due time is kept. Returns
    /// whether the reason is new.
    pub async fn record_waiting(
        &self,
        id: ScheduleId,
        due: Timestamp,
        reason: SkipReason,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        self.change(id, now, move |schedule, _| {
            let since = match &schedule.waiting {
                Some(waiting) if waiting.reason == reason => return None,
                Some(waiting) => waiting.due.min(due),
                None => due,
            };
            schedule.waiting = Some(WaitingFiring { due: since, reason });
            Some(Fact::ScheduleWaiting { due: since, reason })
        })
        .await
    }

    async fn change<F>(&self, id: ScheduleId, now: Timestamp, change: F) -> Result<bool, StoreError>
    where
        F: FnOnce(&mut ScheduleRecord, Moment) -> Option<Fact> + Send + 'static,
    {
        self.write(move |tx| {
            Box::pin(async move {
                let mut schedule = lock(tx, id).await?;
                let was_off = schedule.is_off();
                let Some(fact) = change(&mut schedule, tx.moment(now)) else { return Ok(false) };
                save(tx, &schedule).await?;
                if was_off && schedule.state == ScheduleState::Active && schedule.trigger.follows_events() {
                    cursors::arm(tx, id).await?;
                }
                let ScheduleRecord { agent, name, .. } = schedule;
                tx.record(NewEvent { at: now, agent: Some(agent), schedule: Some(name), job: None, fact });
                Ok(true)
            })
        })
        .await
    }
}

pub(super) fn record(tx: &mut Tx<'_>, schedule: &ScheduleRecord, fact: Fact, now: Timestamp) {
    let (agent, name) = (schedule.agent.clone(), Some(schedule.name.clone()));
    tx.record(NewEvent { at: now, agent: Some(agent), schedule: name, job: None, fact });
}

pub(super) async fn all(tx: &mut Tx<'_>) -> Result<Vec<ScheduleRecord>, StoreError> {
    tx.all(ALL_SCHEDULES, args![]).await?.iter().map(read).collect()
}

/// The part of a schedule's row that decides whether a load of the config changes the row.
pub(super) struct LoadedColumns {
    trigger: String,
    pub(super) is_absent: bool,
    /// True if a load tries the trigger of the schedule again.
    is_stopped: bool,
    /// True during a pause, also if a person disabled the schedule.
    is_paused: bool,
}

impl LoadedColumns {
    /// Returns true if a load of this schedule does not change its row. The result false means that the row may have to
    /// be changed; [`ScheduleRecord::reload`] decides.
    pub(super) fn is_current(&self, schedule: &Schedule) -> Result<bool, StoreError> {
        let may_resume = self.is_paused && !schedule.breaker.is_on();
        let is_same = self.is_absent != schedule.enabled && !self.is_stopped && !may_resume;
        Ok(is_same && self.trigger == jobs::to_json(&schedule.trigger)?)
    }
}

/// Returns these columns of all schedules.
pub(super) async fn loaded(tx: &mut Tx<'_>) -> Result<HashMap<ScheduleId, LoadedColumns>, StoreError> {
    let rows = tx.all(LOADED_SCHEDULES, args![]).await?;
    let read = |row: &Row| {
        let state: String = row.get("state")?;
        let trigger_error: Option<String> = row.get("trigger_error")?;
        let columns = LoadedColumns {
            trigger: row.get("trigger_config")?,
            is_absent: row.time_opt("absent_since")?.is_some(),
            is_stopped: state == "error" && trigger_error.is_some(),
            is_paused: row.time_opt("paused_until")?.is_some(),
        };
        Ok((row.parse("id")?, columns))
    };
    rows.iter().map(read).collect()
}

/// Returns the schedules with these ids, given as a list in JSON.
pub(super) async fn of_ids(tx: &mut Tx<'_>, ids: String) -> Result<Vec<ScheduleRecord>, StoreError> {
    tx.all(SCHEDULES_OF_IDS, args![ids]).await?.iter().map(read).collect()
}

pub(super) async fn get(tx: &mut Tx<'_>, id: ScheduleId) -> Result<Option<ScheduleRecord>, StoreError> {
    tx.one(GET_SCHEDULE, args![id]).await?.as_ref().map(read).transpose()
}

/// Adds a schedule and returns whether it is new.
pub(super) async fn add(tx: &mut Tx<'_>, schedule: &ScheduleRecord) -> Result<bool, StoreError> {
    Ok(tx.execute(ADD_SCHEDULE, columns(schedule)?).await? != 0)
}

/// Returns the row and locks it until the end of the transaction.
pub(super) async fn lock(tx: &mut Tx<'_>, id: ScheduleId) -> Result<ScheduleRecord, StoreError> {
    lock_opt(tx, id).await?.ok_or(StoreError::NoSchedule(id))
}

pub(super) async fn lock_opt(tx: &mut Tx<'_>, id: ScheduleId) -> Result<Option<ScheduleRecord>, StoreError> {
    tx.one(LOCK_SCHEDULE, args![id]).await?.as_ref().map(read).transpose()
}

pub(super) async fn save(tx: &mut Tx<'_>, schedule: &ScheduleRecord) -> Result<(), StoreError> {
    tx.execute(SAVE_SCHEDULE, columns(schedule)?).await?;
    Ok(())
}

fn columns(schedule: &ScheduleRecord) -> Result<Vec<Arg>, StoreError> {
    let trigger = serde_json::to_string(&schedule.trigger);
    let trigger = trigger.map_err(|error| StoreError::Unreadable { what: error.to_string() })?;
    let (state, why, paused_until) = match &schedule.state {
        // The column `finished` distinguishes these two states.
        ScheduleState::Active | ScheduleState::Finished => ("active", None, None),
        ScheduleState::Disabled { why } => ("disabled", Some(why.as_str()), schedule.pause_while_disabled),
        ScheduleState::Error { reason } => ("error", Some(reason.as_str()), None),
        // A paused schedule is stored as active, with `paused_until`.
        ScheduleState::Paused { reason, until } => ("active", Some(reason.as_str()), Some(*until)),
    };
    let breaker_state = (schedule.breaker_state != BreakerState::default())
        .then(|| jobs::to_json(&schedule.breaker_state))
        .transpose()?;
    let interval_count = i64::try_from(schedule.interval_count).unwrap_or(i64::MAX);
    let fill_count = i64::try_from(schedule.fill_count).unwrap_or(i64::MAX);
    Ok(args![
        schedule.id,
        schedule.agent.as_str(),
        schedule.name.as_str(),
        trigger,
        state,
        why,
        schedule.run_at,
        schedule.generation,
        schedule.armed_at,
        interval_count,
        schedule.last_due,
        schedule.last_run_at,
        schedule.last_error.clone(),
        schedule.waiting.as_ref().map(|waiting| waiting.due),
        schedule.waiting.as_ref().map(|waiting| waiting.reason.as_str()),
        breaker_state,
        paused_until,
        schedule.polled_at.map(|at| at.wall),
        i64::from(schedule.fill),
        fill_count,
        schedule.interval_from.map(|from| from.wall),
        schedule.interval_from.and_then(|from| from.boot),
        paused_until.and(schedule.pause_boot),
        u32::from(schedule.state == ScheduleState::Finished),
        schedule.run_error.clone(),
        schedule.replay_until,
        schedule.polled_at.and_then(|at| at.boot),
        schedule.absent_since,
        schedule.trigger_error.as_ref().map(jobs::to_json).transpose()?,
    ])
}

fn read(row: &Row) -> Result<ScheduleRecord, StoreError> {
    let trigger: String = row.get("trigger_config")?;
    let waiting_due = row.time_opt("waiting_due")?;
    let waiting_reason = row.parse_opt("waiting_reason")?;
    let state: String = row.get("state")?;
    let state = match state.as_str() {
        "active" => match row.time_opt("paused_until")? {
            Some(until) => ScheduleState::Paused { reason: row.get("state_why")?, until },
            None if row.get::<i64>("finished")? == 1 => ScheduleState::Finished,
            None => ScheduleState::Active,
        },
        "disabled" => ScheduleState::Disabled { why: row.parse("state_why")? },
        "error" => ScheduleState::Error { reason: row.get("state_why")? },
        other => return Err(row.unreadable("state", other)),
    };
    let is_disabled = matches!(state, ScheduleState::Disabled { .. });
    Ok(ScheduleRecord {
        id: row.parse("id")?,
        agent: row.parse("agent")?,
        name: row.parse("name")?,
        state,
        trigger: serde_json::from_str(&trigger).map_err(|_| row.unreadable("trigger_config", &trigger))?,
        run_at: row.time_opt("run_at")?,
        generation: row.count("generation")?,
        armed_at: row.time("armed_at")?,
        interval_count: row.count("interval_count")?,
        last_due: row.time_opt("last_due")?,
        replay_until: row.time_opt("replay_until")?,
        last_run_at: row.time_opt("last_run_at")?,
        last_error: row.get("last_error")?,
        trigger_error: row.json_opt("trigger_error")?,
        polled_at: row.moment_opt("polled_at", "polled_boot")?,
        fill: row.get::<i64>("fill")? == 1,
        fill_count: row.count("fill_count")?,
        run_error: row.get("run_error")?,
        waiting: waiting_due.zip(waiting_reason).map(|(due, reason)| WaitingFiring { due, reason }),
        breaker_state: row.json_opt("fuse")?.unwrap_or_default(),
        interval_from: row.moment_opt("counted_from", "counted_boot")?,
        pause_while_disabled: row.time_opt("paused_until")?.filter(|_| is_disabled),
        pause_boot: row.parse_opt("pause_boot")?,
        absent_since: row.time_opt("absent_since")?,
    })
}

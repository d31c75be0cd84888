//! Loads the schedules and hooks of a fleet's config into the store.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use cowhand_core::event::Fact;
use cowhand_core::id::ScheduleId;
use cowhand_core::roster::{Agent, FormerName, Roster, Schedule};
use cowhand_core::schedule::ScheduleRecord;
use jiff::Timestamp;

use super::adoptions::EmptyAdoption;
use super::database::db::Tx;
use super::database::event_log::NewEvent;
use super::schedules::LoadedColumns;
use super::{Store, StoreError, adoptions, cursors, jobs, schedules};

impl Store {
    /// Stores every schedule and hook of the fleet; only new and changed schedules are armed. Schedules that the fleet
    /// no longer has keep their history. Jobs that wait for a calendar get their earliest start by the calendar of this
    /// config. Returns the schedules whose `adopt` in the config adopts nothing, because the store does not know the
    /// former name.
    pub async fn load_schedules(
        &self,
        roster: impl Into<Arc<Roster>>,
        now: Timestamp,
    ) -> Result<Vec<EmptyAdoption>, StoreError> {
        let roster = roster.into();
        self.load_hooks(&roster).await?;
        let (renamed, empty) = (self.find_renamed(&roster).await?, self.empty_adoptions(&roster).await?);
        let loaded = Arc::clone(&roster);
        self.write(move |tx| {
            Box::pin(async move {
                adoptions::adopt_all(tx, &loaded, now).await?;
                let stored = schedules::loaded(tx).await?;
                for (id, configured) in by_id(&loaded, &stored) {
                    let Some((agent, schedule)) = configured else {
                        record_absent(tx, id, now).await?;
                        continue;
                    };
                    // Most schedules are unchanged, and their rows are neither locked nor written.
                    match stored.get(&id) {
                        Some(stored) if stored.is_current(schedule)? => keep_cursor(tx, schedule).await?,
                        _ => load(tx, agent, schedule, renamed.get(&id), now).await?,
                    }
                }
                Ok(())
            })
        })
        .await?;
        // Jobs are locked before schedules, so this is a transaction of its own.
        self.write(move |tx| Box::pin(async move { jobs::follow_calendars(tx, &roster, now).await })).await?;
        let mut adopts_nothing = Vec::new();
        for adoption in empty {
            // It may have taken over the jobs that stayed with their agent.
            if !self.was_adopted(adoption.clone()).await? {
                adopts_nothing.push(adoption);
            }
        }
        Ok(adopts_nothing)
    }

    /// Returns the probable former names of new schedules. Only former schedules that have fired count.
    async fn find_renamed(&self, roster: &Roster) -> Result<HashMap<ScheduleId, FormerName>, StoreError> {
        let mut renamed = HashMap::new();
        let mut schedules = roster.agents.iter().flat_map(|agent| &agent.schedules);
        if !schedules.any(|schedule| schedule.trigger.reads_a_list()) {
            return Ok(renamed);
        }
        for (schedule, formers) in roster.seem_renamed(&self.schedules().await?) {
            for former in formers {
                if self.has_fired(former.id()).await? {
                    renamed.insert(schedule, former);
                    break;
                }
            }
        }
        Ok(renamed)
    }
}

/// Stores a schedule of the config. `former` is the probable former name of a new schedule. With a former name, the new
/// schedule gets the state `error` until a person decides, so that it does not fire again for old occurrences.
async fn load(
    tx: &mut Tx<'_>,
    agent: &Agent,
    schedule: &Schedule,
    former: Option<&FormerName>,
    now: Timestamp,
) -> Result<(), StoreError> {
    let mut new = ScheduleRecord::new(&agent.name, schedule, now);
    let mut fact = Fact::ScheduleArmed;
    if let Some(former) = former {
        let reason = former.rename_advice(&new);
        new.fail(&reason);
        fact = Fact::ScheduleError { reason };
    }
    if !schedules::add(tx, &new).await? {
        let mut stored = schedules::lock(tx, schedule.id).await?;
        let is_resumed = stored.resume_without_breaker(schedule, now);
        let is_reloaded = stored.reload(schedule, now);
        if is_resumed || is_reloaded {
            schedules::save(tx, &stored).await?;
        }
        if is_resumed {
            schedules::record(tx, &stored, Fact::ScheduleResumed, now);
        }
        if !is_reloaded {
            return keep_cursor(tx, schedule).await;
        }
        if !schedule.enabled {
            return Ok(());
        }
    }
    if schedule.trigger.follows_events() {
        cursors::arm(tx, schedule.id).await?;
    }
    let (agent, schedule) = (agent.name.clone(), Some(schedule.name.clone()));
    tx.record(NewEvent { at: now, agent: Some(agent), schedule, job: None, fact });
    Ok(())
}

/// Keeps the cursor of an unchanged schedule that follows events.
async fn keep_cursor(tx: &mut Tx<'_>, schedule: &Schedule) -> Result<(), StoreError> {
    if schedule.trigger.follows_events() {
        cursors::keep(tx, schedule).await?;
    }
    Ok(())
}

/// Records that the config does not have a schedule any more.
async fn record_absent(tx: &mut Tx<'_>, id: ScheduleId, now: Timestamp) -> Result<(), StoreError> {
    let mut stored = schedules::lock(tx, id).await?;
    if stored.leave(now) {
        schedules::save(tx, &stored).await?;
    }
    Ok(())
}

/// Returns two kinds of schedules by id. Schedules of the config have their agent and schedule as the value. Stored
/// schedules that the config no longer has, and that are not recorded as absent, have the value `None`. The caller
/// locks the rows in the order of ids, because two nodes may list the schedules differently.
fn by_id<'f>(
    roster: &'f Roster,
    stored: &HashMap<ScheduleId, LoadedColumns>,
) -> BTreeMap<ScheduleId, Option<(&'f Agent, &'f Schedule)>> {
    let present = stored.iter().filter(|(_, columns)| !columns.is_absent);
    let mut all: BTreeMap<_, _> = present.map(|(id, _)| (*id, None)).collect();
    for agent in &roster.agents {
        all.extend(agent.schedules.iter().map(|schedule| (schedule.id, Some((agent, schedule)))));
        // The schedule of web chat is stored with its first message.
        let web_chat = agent.web_chat.iter().map(|chat| &*chat.schedule);
        let used = web_chat.filter(|schedule| stored.contains_key(&schedule.id));
        all.extend(used.map(|schedule| (schedule.id, Some((agent, schedule)))));
    }
    all
}

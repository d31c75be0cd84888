//! Loading a fleet: the schedules and hooks of its config.

use std::collections::HashMap;

use cowhand_core::event::Fact;
use cowhand_core::id::ScheduleId;
use cowhand_core::roster::{Agent, Former, Roster, Schedule};
use cowhand_core::schedule::ScheduleRecord;
use jiff::Timestamp;

use super::database::event_log::Recorded;
use super::{Store, StoreError, adoptions, cursors, schedules};

impl Store {
    /// Stores every schedule and hook of the fleet; only new and changed schedules are armed. Schedules that the fleet
    /// no longer has keep their history.
    pub async fn load_schedules(&self, roster: Roster, now: Timestamp) -> Result<(), StoreError> {
        self.load_hooks(&roster).await?;
        let renamed = self.renamed(&roster).await?;
        self.write(move |tx| {
            Box::pin(async move {
                adoptions::adopt_all(tx, &roster, now).await?;
                for (agent, schedule) in in_order(&roster) {
                    let listens = schedule.trigger.follows_events();
                    let mut new = ScheduleRecord::new(&agent.name, schedule, now);
                    let mut fact = Fact::ScheduleArmed;
                    if let Some(former) = renamed.get(&schedule.id) {
                        let reason = former.suspicion(&new);
                        new.give_up(&reason);
                        fact = Fact::ScheduleError { reason };
                    }
                    if !schedules::add(tx, &new).await? {
                        let mut known = schedules::lock(tx, schedule.id).await?;
                        if !known.reload(schedule, now) {
                            if listens {
                                cursors::keep(tx, schedule).await?;
                            }
                            continue;
                        }
                        schedules::save(tx, &known).await?;
                    }
                    if listens {
                        cursors::arm(tx, schedule.id).await?;
                    }
                    let (agent, schedule) = (agent.name.clone(), Some(schedule.name.clone()));
                    tx.record(Recorded { at: now, agent: Some(agent), schedule, job: None, fact });
                }
                Ok(())
            })
        })
        .await
    }

    /// Returns the probable former names of new schedules, among those that have fired.
    async fn renamed(&self, roster: &Roster) -> Result<HashMap<ScheduleId, Former>, StoreError> {
        let mut renamed = HashMap::new();
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

/// Returns the schedules by id, the order in which rows are locked: two nodes may list them differently.
fn in_order<'f>(roster: &'f Roster) -> Vec<(&'f Agent, &'f Schedule)> {
    let of_agent = |agent: &'f Agent| agent.schedules.iter().map(move |schedule| (agent, schedule));
    let mut all: Vec<_> = roster.agents.iter().flat_map(of_agent).collect();
    all.sort_unstable_by_key(|(_, schedule)| schedule.id);
    all
}

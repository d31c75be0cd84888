//! Sightings: items that a polled list showed, so that each item fires once, and again when it comes back.

use std::collections::{HashMap, HashSet};

use cowhand_core::id::ScheduleId;
use cowhand_core::trigger::FiringKey;

use super::database::db::{Row, Tx, args, json_list};
use super::database::dialect::statements;
use super::{Store, StoreError};

statements! {
    LOCK_LIST = locked "select id from schedules where id = $1";
    // The items of the last list, and those of the new list ($2). Older items are not needed.
    SIGHTED =
        sqlite "select item, generation, present from sightings where schedule_id = $1 and present = 1 \
            union select item, generation, present from sightings where schedule_id = $1 \
            and item in (select value from json_each($2))"
        postgres "select item, generation, present from sightings where schedule_id = $1 and present = 1 \
            union select item, generation, present from sightings where schedule_id = $1 \
            and item = any (array(select json_array_elements_text(($2::text)::json)))";
    SIGHT = same "insert into sightings (schedule_id, item, generation, present) values ($1, $2, $3, $4) \
        on conflict (schedule_id, item) do update set generation = excluded.generation, present = excluded.present";
    FIRED_KEYS =
        sqlite "select key from firings where schedule_id = $1 and key in (select value from json_each($2))"
        // `limit` makes PostgreSQL look up each key, instead of reading all firings of the schedule.
        postgres "select fired.key from json_array_elements_text(($2::text)::json) as listed (value) cross join lateral \
            (select key from firings where schedule_id = $1 and key = listed.value limit 1) as fired";
}

/// Last recorded state of an item.
#[derive(Clone, Copy)]
struct Sighting {
    generation: u32,
    /// Whether the last list contained the item.
    present: bool,
}

impl Store {
    /// Records the items of a polled list. `list` has the key of each item in its first generation. Returns the keys in
    /// their current generation that have not fired, each with its position in the list: the keys of new items, of
    /// items that came back, and of items that were seen earlier and have not fired. An unchanged list writes nothing.
    pub async fn record_sightings(
        &self,
        schedule: ScheduleId,
        list: Vec<FiringKey>,
    ) -> Result<Vec<(usize, FiringKey)>, StoreError> {
        let (sightings, fired) = self.read_sightings(schedule, &list).await?;
        let keys = changes(&list, &sightings);
        let keys = match keys {
            Listed { keys, writes } if writes.is_empty() => keys,
            _ => {
                let list = list.clone();
                self.write(move |tx| Box::pin(record_list(tx, schedule, list))).await?
            }
        };
        // A generation that was just written cannot have fired.
        let unfired = keys.into_iter().enumerate().filter(|(_, key)| !fired.contains(key.as_str()));
        Ok(unfired.collect())
    }

    /// Reads the recorded items, and the keys of listed items that have fired.
    async fn read_sightings(
        &self,
        schedule: ScheduleId,
        list: &[FiringKey],
    ) -> Result<(HashMap<String, Sighting>, HashSet<String>), StoreError> {
        let list = list.to_vec();
        self.read(move |tx| {
            Box::pin(async move {
                let sightings = sightings(tx, schedule, &list).await?;
                let keys = changes(&list, &sightings).keys;
                let rows = tx.all(FIRED_KEYS, args![schedule, json_list(&keys)?]).await?;
                let fired = rows.iter().map(|row| row.get("key")).collect::<Result<_, _>>()?;
                Ok((sightings, fired))
            })
        })
        .await
    }
}

/// Records the list under the lock of the schedule. Reads the sightings again, because another node may have recorded
/// the same list.
async fn record_list(
    tx: &mut Tx<'_>,
    schedule: ScheduleId,
    list: Vec<FiringKey>,
) -> Result<Vec<FiringKey>, StoreError> {
    tx.one(LOCK_LIST, args![schedule]).await?.ok_or(StoreError::NoSchedule(schedule))?;
    let sightings = sightings(tx, schedule, &list).await?;
    let Listed { keys, writes } = changes(&list, &sightings);
    for (item, Sighting { generation, present }) in writes {
        tx.execute(SIGHT, args![schedule, item, generation, i64::from(present)]).await?;
    }
    Ok(keys)
}

async fn sightings(
    tx: &mut Tx<'_>,
    schedule: ScheduleId,
    list: &[FiringKey],
) -> Result<HashMap<String, Sighting>, StoreError> {
    tx.all(SIGHTED, args![schedule, json_list(list)?]).await?.iter().map(read).collect()
}

fn read(row: &Row) -> Result<(String, Sighting), StoreError> {
    let present: i64 = row.get("present")?;
    Ok((row.get("item")?, Sighting { generation: row.count("generation")?, present: present == 1 }))
}

struct Listed {
    /// Current key of each entry of the list.
    keys: Vec<FiringKey>,
    /// Changes to the recorded items.
    writes: Vec<(String, Sighting)>,
}

/// Compares the list with the recorded items.
fn changes(list: &[FiringKey], sightings: &HashMap<String, Sighting>) -> Listed {
    let mut writes = Vec::new();
    let mut keys = Vec::with_capacity(list.len());
    let mut listed_items = HashSet::with_capacity(list.len());
    for item in list {
        let sighting = sightings.get(item.as_str());
        let generation = match sighting {
            Some(Sighting { generation, present: true }) => *generation,
            Some(Sighting { generation, present: false }) => generation + 1,
            None => 0,
        };
        keys.push(item.in_generation(generation));
        let is_first = listed_items.insert(item.as_str());
        if is_first && sighting.is_none_or(|sighting| !sighting.present) {
            writes.push((item.to_string(), Sighting { generation, present: true }));
        }
    }
    let removed =
        sightings.iter().filter(|(item, sighting)| sighting.present && !listed_items.contains(item.as_str()));
    writes.extend(removed.map(|(item, sighting)| (item.clone(), Sighting { present: false, ..*sighting })));
    Listed { keys, writes }
}

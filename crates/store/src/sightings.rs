//! Sightings: items that a polled list showed, so that each item fires once, and again when it comes back.

use std::collections::{HashMap, HashSet};

use cowhand_core::id::ScheduleId;
use cowhand_core::trigger::FiringKey;

use super::database::db::{Row, Tx, args};
use super::database::dialect::statements;
use super::{Store, StoreError};

statements! {
    LOCK_LIST = locked "select id from schedules where id = $1";
    SIGHTED = same "select item, generation, present from sightings where schedule_id = $1";
    SIGHT = same "insert into sightings (schedule_id, item, generation, present) values ($1, $2, $3, $4) \
        on conflict (schedule_id, item) do update set generation = excluded.generation, present = excluded.present";
    FIRED_KEYS =
        sqlite "select key from firings where schedule_id = $1 and key in (select value from json_each($2))"
        postgres "select key from firings where schedule_id = $1 \
            and key in (select json_array_elements_text(($2::text)::json))";
}

/// Known state of an item.
#[derive(Clone, Copy)]
struct Known {
    generation: u32,
    present: bool,
}

impl Store {
    /// Records everything that a list shows now, each item by its first key, and returns the keys that have not fired,
    /// in the order of the list: new items, items that came back, and items that were seen but not fired. An unchanged
    /// list writes nothing.
    pub async fn sight(
        &self,
        schedule: ScheduleId,
        list: Vec<FiringKey>,
    ) -> Result<Vec<(usize, FiringKey)>, StoreError> {
        let (seen, fired) = self.look(schedule, &list).await?;
        let keys = changes(&list, &seen);
        let keys = match keys {
            Listed { keys, writes } if writes.is_empty() => keys,
            _ => {
                let list = list.clone();
                self.write(move |tx| Box::pin(note(tx, schedule, list))).await?
            }
        };
        // A generation that was just written cannot have fired.
        let open = keys.into_iter().enumerate().filter(|(_, key)| !fired.contains(key.as_str()));
        Ok(open.collect())
    }

    /// Reads known items, and which of the possible keys have fired.
    async fn look(
        &self,
        schedule: ScheduleId,
        list: &[FiringKey],
    ) -> Result<(HashMap<String, Known>, HashSet<String>), StoreError> {
        let list = list.to_vec();
        self.read(move |tx| {
            Box::pin(async move {
                let seen = seen(tx, schedule).await?;
                let keys = changes(&list, &seen).keys;
                let keys = serde_json::to_string(&keys)
                    .map_err(|error| StoreError::Unreadable { what: error.to_string() })?;
                let rows = tx.all(FIRED_KEYS, args![schedule, keys]).await?;
                let fired = rows.iter().map(|row| row.get("key")).collect::<Result<_, _>>()?;
                Ok((seen, fired))
            })
        })
        .await
    }
}

/// Reads again with the schedule locked: another node may have seen the same list.
async fn note(
    tx: &mut Tx<'_>,
    schedule: ScheduleId,
    list: Vec<FiringKey>,
) -> Result<Vec<FiringKey>, StoreError> {
    tx.one(LOCK_LIST, args![schedule]).await?.ok_or(StoreError::NoSchedule(schedule))?;
    let seen = seen(tx, schedule).await?;
    let Listed { keys, writes } = changes(&list, &seen);
    for (item, Known { generation, present }) in writes {
        tx.execute(SIGHT, args![schedule, item, generation, i64::from(present)]).await?;
    }
    Ok(keys)
}

async fn seen(tx: &mut Tx<'_>, schedule: ScheduleId) -> Result<HashMap<String, Known>, StoreError> {
    tx.all(SIGHTED, args![schedule]).await?.iter().map(read).collect()
}

fn read(row: &Row) -> Result<(String, Known), StoreError> {
    let present: i64 = row.get("present")?;
    Ok((row.get("item")?, Known { generation: row.count("generation")?, present: present == 1 }))
}

struct Listed {
    /// Current key of each entry of the list.
    keys: Vec<FiringKey>,
    /// Changes to the known items.
    writes: Vec<(String, Known)>,
}

fn changes(list: &[FiringKey], seen: &HashMap<String, Known>) -> Listed {
    let mut writes = Vec::new();
    let mut keys = Vec::with_capacity(list.len());
    let mut shown = HashSet::with_capacity(list.len());
    for item in list {
        let known = seen.get(item.as_str());
        let generation = match known {
            Some(Known { generation, present: true }) => *generation,
            Some(Known { generation, present: false }) => generation + 1,
            None => 0,
        };
        keys.push(item.in_generation(generation));
        let is_first = shown.insert(item.as_str());
        if is_first && known.is_none_or(|known| !known.present) {
            writes.push((item.to_string(), Known { generation, present: true }));
        }
    }
    let gone = seen.iter().filter(|(item, known)| known.present && !shown.contains(item.as_str()));
    writes.extend(gone.map(|(item, known)| (item.clone(), Known { present: false, ..*known })));
    Listed { keys, writes }
}

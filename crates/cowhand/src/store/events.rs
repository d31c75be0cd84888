//! The event log: numbered in the order of the commits, without gaps.

use cowhand_core::event::{Event, Fact};
use cowhand_core::id::{JobId, ScheduleName};

use super::db::{Recorded, Row, Tx, args};
use super::dialect::statements;
use super::{Store, StoreError};

statements! {
    NUMBER_EVENTS = same "update counters set value = value + $1 where name = 'event' returning value";
    ADD_EVENT = same "insert into events (seq, at, type, agent, schedule, job_id, data) values ($1, $2, $3, $4, $5, $6, $7)";
    EVENTS_AFTER = same "select seq, at, agent, schedule, job_id, data from events where seq > $1 order by seq limit $2";
    LAST_EVENT = same "select value from counters where name = 'event'";
}

/// The number of the last one, 0 if there is none.
pub(super) async fn append(tx: &mut Tx<'_>, recorded: Vec<Recorded>) -> Result<i64, StoreError> {
    let Ok(count @ 1..) = i64::try_from(recorded.len()) else { return Ok(0) };
    let row = tx.one(NUMBER_EVENTS, args![count]).await?;
    let row = row.ok_or_else(|| StoreError::Unreadable { what: "no event counter".to_owned() })?;
    let last: i64 = row.get("value")?;
    for (seq, event) in (last - count + 1..).zip(recorded) {
        let data = serde_json::to_string(&event.fact)
            .map_err(|error| StoreError::Unreadable { what: error.to_string() })?;
        let schedule = event.schedule.as_ref().map(ScheduleName::as_str);
        let job = event.job.as_ref().map(JobId::as_str);
        let row = args![seq, event.at, event.fact.type_name(), event.agent.as_str(), schedule, job, data];
        tx.execute(ADD_EVENT, row).await?;
    }
    Ok(last)
}

impl Store {
    /// What happened after `seq`, oldest first: the one cursor that everyone who follows uses.
    pub async fn events_after(&self, seq: i64, limit: u32) -> Result<Vec<Event>, StoreError> {
        self.read(move |tx| {
            Box::pin(async move {
                tx.all(EVENTS_AFTER, args![seq, limit]).await?.iter().map(read_event).collect()
            })
        })
        .await
    }

    /// The number of the newest event, 0 before the first.
    pub async fn last_event(&self) -> Result<i64, StoreError> {
        self.read(|tx| Box::pin(last(tx))).await
    }
}

pub(super) async fn last(tx: &mut Tx<'_>) -> Result<i64, StoreError> {
    tx.one(LAST_EVENT, args![]).await?.map_or(Ok(0), |row| row.get("value"))
}

fn read_event(row: &Row) -> Result<Event, StoreError> {
    let data: String = row.get("data")?;
    let fact: Fact = serde_json::from_str(&data).map_err(|_| row.unreadable("data", &data))?;
    Ok(Event {
        seq: row.get("seq")?,
        at: row.time("at")?,
        agent: row.parse("agent")?,
        schedule: row.parse_opt("schedule")?,
        job: row.parse_opt("job_id")?,
        fact,
    })
}

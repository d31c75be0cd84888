//! The event log: the events of a transaction are numbered and written at its end, in commit order and without gaps.

use cowhand_core::event::Fact;
use cowhand_core::id::{AgentName, JobId, ScheduleName};
use jiff::Timestamp;

use super::db::{Tx, args};
use super::dialect::statements;
use super::error::StoreError;
use crate::Store;

statements! {
    NUMBER_EVENTS = same "update counters set value = value + $1 where name = 'event' returning value";
    ADD_EVENT = same "insert into events (seq, at, type, agent, schedule, job_id, data, actor) values ($1, $2, $3, $4, $5, $6, $7, $8)";
    LAST_EVENT = same "select value from counters where name = 'event'";
}

/// An event that has no number yet.
#[derive(Debug)]
pub(crate) struct NewEvent {
    pub(crate) at: Timestamp,
    pub(crate) agent: Option<AgentName>,
    pub(crate) schedule: Option<ScheduleName>,
    pub(crate) job: Option<JobId>,
    pub(crate) fact: Fact,
}

impl NewEvent {
    pub(crate) fn of_fleet(fact: Fact, at: Timestamp) -> Self {
        Self { at, agent: None, schedule: None, job: None, fact }
    }
}

impl Tx<'_> {
    /// Writes the recorded events, as the last step of a transaction. Returns the number of the last event; 0 if there
    /// are no events.
    pub(crate) async fn write_events(&mut self) -> Result<i64, StoreError> {
        let events = std::mem::take(&mut self.events);
        append(self, events).await
    }
}

/// Appends events and returns the number of the last event; 0 if there are no events.
async fn append(tx: &mut Tx<'_>, events: Vec<NewEvent>) -> Result<i64, StoreError> {
    let Ok(count @ 1..) = i64::try_from(events.len()) else { return Ok(0) };
    let row = tx.one(NUMBER_EVENTS, args![count]).await?;
    let row = row.ok_or_else(|| StoreError::Unreadable { what: "no event counter".to_owned() })?;
    let last: i64 = row.get("value")?;
    for (seq, event) in (last - count + 1..).zip(events) {
        let json = |result: serde_json::Result<String>| {
            result.map_err(|error| StoreError::Unreadable { what: error.to_string() })
        };
        let data = json(serde_json::to_string(&event.fact))?;
        let actor = tx.actor.as_ref().map(|actor| json(serde_json::to_string(actor))).transpose()?;
        let agent = event.agent.as_ref().map_or("", AgentName::as_str);
        let schedule = event.schedule.as_ref().map(ScheduleName::as_str);
        let job = event.job.as_ref().map(JobId::as_str);
        let row = args![seq, event.at, event.fact.type_name(), agent, schedule, job, data, actor];
        tx.execute(ADD_EVENT, row).await?;
    }
    Ok(last)
}

impl Store {
    /// Returns the number of the newest event; 0 if there are no events.
    pub async fn last_event(&self) -> Result<i64, StoreError> {
        self.read(|tx| Box::pin(last(tx))).await
    }
}

pub(crate) async fn last(tx: &mut Tx<'_>) -> Result<i64, StoreError> {
    tx.one(LAST_EVENT, args![]).await?.map_or(Ok(0), |row| row.get("value"))
}

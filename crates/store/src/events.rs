//! Reads the event log, and records facts that change no other table. Events are numbered in commit order and without
//! gaps.

use std::collections::{BTreeSet, HashMap};

use cowhand_core::event::{Event, Fact};
use cowhand_core::id::{AgentName, JobId};
use cowhand_core::job::JobRecord;
use jiff::Timestamp;

use super::database::db::{Row, args};
use super::database::dialect::statements;
use super::database::event_log::{self, NewEvent};
use super::{Store, StoreError, jobs};

statements! {
    // Neither a hook nor the id of a session nor the end of a message changes a plan.
    CHANGED_AGENTS = same "select agent, type, max(seq) as seq from events where seq > $1 \
        and type not in ('hook:completed', 'hook:failed', 'hook:skipped', 'job:session', 'job:message_settled') group by agent, type";
    EVENTS_AFTER = same "select seq, at, agent, schedule, job_id, data, actor from events where seq > $1 order by seq limit $2";
    AUDIT_AFTER = same "select seq, at, agent, schedule, job_id, data, actor from events \
        where actor is not null and seq > $1 order by seq limit $2";
    LAST_AUDIT = same "select seq, at, agent, schedule, job_id, data, actor from events \
        where actor is not null order by seq desc limit $1";
    CANCELLATION = same "select seq, at, agent, schedule, job_id, data, actor from events \
        where job_id = $1 and type in ('job:cancelling', 'job:cancelled') order by seq";
    LAST_ITEM_REPORT = same "select seq, at, agent, schedule, job_id, data, actor from events where job_id = $1 \
        and type in ('work:reported', 'work:released', 'work:dropped', 'work:delayed') order by seq desc limit 1";
}

/// The agents that events concern.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangedAgents {
    /// Number of the newest event.
    pub newest: i64,
    pub agents: BTreeSet<AgentName>,
    /// True if an event concerns the plans of the whole fleet.
    pub whole_fleet: bool,
    /// Agents whose jobs have new messages.
    pub with_messages: BTreeSet<AgentName>,
}

/// Events of the fleet that change no plan.
const WITHOUT_PLAN: [&str; 12] = [
    "token:created",
    "token:revoked",
    "access:refused",
    "fleet:config_refused",
    "fleet:stopping",
    "work:reopened",
    "budget:reached",
    "budget:relieved",
    "node:lost",
    "node:returned",
    "disk:low",
    "disk:freed",
];

impl Store {
    /// Returns the agents whose plans the events after `seq` may have changed.
    pub async fn changed_agents(&self, seq: i64) -> Result<ChangedAgents, StoreError> {
        self.read(move |tx| {
            Box::pin(async move {
                let newest = event_log::last(tx).await?;
                let mut changed = ChangedAgents { newest, ..ChangedAgents::default() };
                if newest == seq {
                    return Ok(changed);
                }
                for row in tx.all(CHANGED_AGENTS, args![seq]).await? {
                    let kind: String = row.get("type")?;
                    if kind == "job:message" {
                        changed.with_messages.insert(row.parse("agent")?);
                    } else if row.get::<String>("agent")?.is_empty() {
                        changed.whole_fleet |= !WITHOUT_PLAN.contains(&kind.as_str());
                    } else {
                        changed.agents.insert(row.parse("agent")?);
                    }
                }
                Ok(changed)
            })
        })
        .await
    }

    /// Returns at most `limit` events after `seq`, the oldest first. Every reader uses the `seq` of its last event as
    /// its cursor.
    pub async fn events_after(&self, seq: i64, limit: u32) -> Result<Vec<Event>, StoreError> {
        self.read(move |tx| {
            Box::pin(async move {
                tx.all(EVENTS_AFTER, args![seq, limit]).await?.iter().map(read_event).collect()
            })
        })
        .await
    }

    /// Returns the events after `seq` that have an actor.
    pub async fn audit_events_after(&self, seq: i64, limit: u32) -> Result<Vec<Event>, StoreError> {
        let rows = self.read(move |tx| Box::pin(async move { tx.all(AUDIT_AFTER, args![seq, limit]).await }));
        rows.await?.iter().map(read_event).collect()
    }

    /// Returns the newest events that have an actor, the oldest first.
    pub async fn last_audit_events(&self, limit: u32) -> Result<Vec<Event>, StoreError> {
        let rows = self.read(move |tx| Box::pin(async move { tx.all(LAST_AUDIT, args![limit]).await }));
        rows.await?.iter().rev().map(read_event).collect()
    }

    /// Returns the event that names who or what cancelled a job: the first event with an actor, or else the last
    /// request, or else the last event of a cancellation. Returns `None` if there is no such event.
    pub async fn cancellation(&self, job: JobId) -> Result<Option<Event>, StoreError> {
        let rows =
            self.read(move |tx| Box::pin(async move { tx.all(CANCELLATION, args![job.as_str()]).await }));
        let events = rows.await?.iter().map(read_event).collect::<Result<Vec<_>, _>>()?;
        let has_actor = |event: &&Event| event.by.is_some();
        let is_request = |event: &&Event| matches!(event.fact, Fact::JobCancelling { .. });
        Ok(events
            .iter()
            .find(has_actor)
            .or_else(|| events.iter().rfind(is_request))
            .or(events.last())
            .cloned())
    }

    /// Returns the last event about the delivery of a job's result, or of the release of its item, to the work source.
    /// The delivery may be delayed, or dropped.
    pub async fn last_item_report(&self, job: JobId) -> Result<Option<Event>, StoreError> {
        let row =
            self.read(move |tx| Box::pin(async move { tx.one(LAST_ITEM_REPORT, args![job.as_str()]).await }));
        row.await?.as_ref().map(read_event).transpose()
    }

    /// Adds the record of the job to each event whose type has this record ([`Event::contains_job`]), and the record of
    /// the original job to the event of a fork. The record of a pruned job is left out.
    pub async fn with_jobs(&self, mut events: Vec<Event>) -> Result<Vec<Event>, StoreError> {
        let original = |event: &Event| match &event.fact {
            Fact::JobForked { forked_from } => Some(forked_from.clone()),
            _ => None,
        };
        let events_with_job = || events.iter().filter(|event| event.contains_job());
        let mut ids: Vec<JobId> = events_with_job().filter_map(|event| event.job.clone()).collect();
        ids.extend(events_with_job().filter_map(original));
        if ids.is_empty() {
            return Ok(events);
        }
        ids.sort_unstable();
        ids.dedup();
        let jobs = self.read(move |tx| Box::pin(async move { jobs::by_ids(tx, &ids).await })).await?;
        let jobs: HashMap<JobId, JobRecord> =
            jobs.into_iter().map(|job| (job.id().clone(), JobRecord::from(job))).collect();
        for event in events.iter_mut().filter(|event| event.contains_job()) {
            let record_of = |id: &JobId| jobs.get(id).cloned();
            let (job, original) =
                (event.job.as_ref().and_then(record_of), original(event).as_ref().and_then(record_of));
            event.attach_records(job, original);
        }
        Ok(events)
    }

    /// Records a fact about the fleet that changes no other table.
    pub async fn record_fact(&self, fact: Fact, now: Timestamp) -> Result<(), StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                tx.record(NewEvent::of_fleet(fact, now));
                Ok(())
            })
        })
        .await
    }

    /// Records a fact about an agent, or about the fleet if `agent` is `None`, that changes no other table.
    pub async fn record_fact_of_agent(
        &self,
        agent: Option<AgentName>,
        fact: Fact,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                tx.record(NewEvent { agent, ..NewEvent::of_fleet(fact, now) });
                Ok(())
            })
        })
        .await
    }

    /// Records a fact about a job that changes no other table. Does nothing if the job does not exist.
    pub async fn record_fact_of_job(&self, job: JobId, fact: Fact, now: Timestamp) -> Result<(), StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                if let Some(job) = jobs::get(tx, &job).await? {
                    jobs::record(tx, &job, fact, now);
                }
                Ok(())
            })
        })
        .await
    }
}

pub(super) fn read_event(row: &Row) -> Result<Event, StoreError> {
    let data: String = row.get("data")?;
    let fact: Fact = serde_json::from_str(&data).map_err(|_| row.unreadable("data", &data))?;
    let agent: String = row.get("agent")?;
    let by: Option<String> = row.get("actor")?;
    let by = by.map(|by| serde_json::from_str(&by).map_err(|_| row.unreadable("actor", &by))).transpose()?;
    Ok(Event {
        seq: row.get("seq")?,
        at: row.time("at")?,
        agent: if agent.is_empty() { None } else { Some(row.parse("agent")?) },
        schedule: row.parse_opt("schedule")?,
        job: row.parse_opt("job_id")?,
        by,
        fact,
        job_record: None,
        original_job_record: None,
    })
}

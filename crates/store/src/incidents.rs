//! Incidents: states of the fleet that people are told about. They follow from the event log. One cursor for the whole
//! fleet moves in the transaction that writes the notifications, so each event is followed once, by any node.

use std::sync::Arc;

use cowhand_core::incident::{IncidentStep, OpenIncidents};
use cowhand_core::notification::{Incident, IncidentEnd, NotificationKind};
use cowhand_core::roster::Roster;
use jiff::Timestamp;

use super::database::db::{Row, Tx, args};
use super::database::dialect::statements;
use super::database::event_log;
use super::events::read_event;
use super::{Store, StoreError, jobs, notifications};

statements! {
    FOLLOWED = same "select value from counters where name = 'followed'";
    LOCK_FOLLOWED = locked "select value from counters where name = 'followed'";
    BEGIN_FOLLOWING = same "insert into counters (name, value) values ('followed', $1) on conflict (name) do nothing";
    SET_FOLLOWED = same "update counters set value = $1 where name = 'followed'";
    STOP_FOLLOWING = same "delete from counters where name = 'followed'";
    EVENTS_TO_FOLLOW = same "select seq, at, agent, schedule, job_id, data, actor from events where seq > $1 order by seq limit $2";
    NEXT_INCIDENT = same "select min(next_at) as next from incidents where ended_at is null";
    INCIDENTS_OPEN = same "select content from incidents where ended_at is null";
    ADD_INCIDENT = same "insert into incidents (opened_by, kind, subject, content, next_at) values ($1, $2, $3, $4, $5)";
    SAVE_INCIDENT = same "update incidents set content = $2, next_at = $3, ended_at = $4, ended_as = $5 where opened_by = $1";
    END_INCIDENTS = same "update incidents set next_at = null, ended_at = $1, ended_as = 'removed' where ended_at is null";
    FORGET_INCIDENTS = same "delete from incidents where opened_by in \
        (select opened_by from incidents where ended_at < $1 order by ended_at limit $2)";
}

/// Number of events that are followed in one transaction.
const EVENTS_PER_STEP: u32 = 200;
/// Largest number of records of each kind that one transaction removes.
const MAX_FORGOTTEN: u32 = 500;

/// Why the incidents are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FollowReason {
    /// A daemon has just started with an accepted config.
    Start,
    Events,
}

/// Result of following the event log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Followed {
    /// True if there may be more events to follow.
    pub has_more: bool,
    /// True if there are new notifications.
    pub has_notifications: bool,
    /// Time at which an incident changes without an event.
    pub next_at: Option<Timestamp>,
    /// True if an attempt ended, so that a budget may have been spent.
    pub has_ended_attempts: bool,
}

impl Store {
    /// Follows the event log from the cursor, and writes the incidents and notifications that follow from the events
    /// and from the time. The first call sets the cursor to the end of the log, because earlier events do not count.
    pub async fn follow_incidents(
        &self,
        roster: Arc<Roster>,
        reason: FollowReason,
        now: Timestamp,
    ) -> Result<Followed, StoreError> {
        if let Some(nothing) = self.nothing_to_follow(reason, now).await? {
            return Ok(nothing);
        }
        self.write(move |tx| Box::pin(async move { follow(tx, &roster, reason, now).await })).await
    }

    /// Checks with a read whether there is anything to follow, because writes are expensive.
    async fn nothing_to_follow(
        &self,
        reason: FollowReason,
        now: Timestamp,
    ) -> Result<Option<Followed>, StoreError> {
        self.read(move |tx| {
            Box::pin(async move {
                let Some(row) = tx.one(FOLLOWED, args![]).await? else { return Ok(None) };
                let followed: i64 = row.get("value")?;
                let next_at = next(tx).await?;
                let is_due = next_at.is_some_and(|at| at <= now);
                let has_events = event_log::last(tx).await? > followed;
                let has_work = reason == FollowReason::Start || is_due || has_events;
                let nothing = Followed {
                    has_more: false,
                    has_notifications: false,
                    next_at,
                    has_ended_attempts: false,
                };
                Ok((!has_work).then_some(nothing))
            })
        })
        .await
    }

    /// Ends all incidents without a message, and forgets the cursor, because the config no longer has notifications.
    pub async fn stop_following(&self, now: Timestamp) -> Result<(), StoreError> {
        let is_following =
            self.read(|tx| Box::pin(async move { Ok(tx.one(FOLLOWED, args![]).await?.is_some()) }));
        if !is_following.await? {
            return Ok(());
        }
        self.write(move |tx| {
            Box::pin(async move {
                tx.one(LOCK_FOLLOWED, args![]).await?;
                tx.execute(STOP_FOLLOWING, args![]).await?;
                tx.execute(END_INCIDENTS, args![now]).await.map(drop)
            })
        })
        .await
    }

    /// Removes the records of notifications and incidents that ended before this time.
    pub async fn forget_notifications(&self, before: Timestamp) -> Result<(), StoreError> {
        loop {
            let removed = self.write(move |tx| {
                Box::pin(async move {
                    let notifications = notifications::forget(tx, before, MAX_FORGOTTEN).await?;
                    Ok(notifications.max(tx.execute(FORGET_INCIDENTS, args![before, MAX_FORGOTTEN]).await?))
                })
            });
            if removed.await? < u64::from(MAX_FORGOTTEN) {
                return Ok(());
            }
        }
    }
}

async fn follow(
    tx: &mut Tx<'_>,
    roster: &Roster,
    reason: FollowReason,
    now: Timestamp,
) -> Result<Followed, StoreError> {
    let Some(row) = tx.one(LOCK_FOLLOWED, args![]).await? else {
        let last = event_log::last(tx).await?;
        tx.execute(BEGIN_FOLLOWING, args![last]).await?;
        return Ok(Followed {
            has_more: true,
            has_notifications: false,
            next_at: None,
            has_ended_attempts: false,
        });
    };
    let followed: i64 = row.get("value")?;
    let rows = tx.all(EVENTS_TO_FOLLOW, args![followed, EVENTS_PER_STEP]).await?;
    let events = rows.iter().map(read_event).collect::<Result<Vec<_>, _>>()?;
    let mut incidents = OpenIncidents::new(open(tx).await?);
    let mut steps = match reason {
        FollowReason::Start => incidents.at_start(roster, now),
        FollowReason::Events => Vec::new(),
    };
    for event in &events {
        steps.extend(incidents.apply(event, roster, now));
    }
    steps.extend(incidents.at_time(now));
    let mut has_notifications = false;
    for step in steps {
        has_notifications |= !step.notifications.is_empty();
        save(tx, step, roster, now).await?;
    }
    if let Some(last) = events.last() {
        tx.execute(SET_FOLLOWED, args![last.seq]).await?;
    }
    Ok(Followed {
        has_more: rows.len() == usize::try_from(EVENTS_PER_STEP).unwrap_or(usize::MAX),
        has_notifications,
        next_at: next(tx).await?,
        has_ended_attempts: events.iter().any(|event| event.fact.ends_attempt()),
    })
}

async fn save(
    tx: &mut Tx<'_>,
    step: IncidentStep,
    roster: &Roster,
    now: Timestamp,
) -> Result<(), StoreError> {
    let IncidentStep { mut incident, is_new, ended, notifications: planned } = step;
    let is_repeated = !is_new && planned.is_empty() && ended.is_none();
    if is_repeated {
        notifications::refresh(tx, &mut incident, now).await?;
    }
    let content = jobs::to_json(&incident)?;
    if is_new {
        let row = args![
            incident.id,
            incident.kind.as_str(),
            incident.subject.as_str(),
            content,
            incident.next_at()
        ];
        tx.execute(ADD_INCIDENT, row).await?;
    } else {
        let next_at = incident.next_at().filter(|_| ended.is_none());
        let row = args![incident.id, content, next_at, ended.map(|_| now), ended.map(IncidentEnd::as_str)];
        tx.execute(SAVE_INCIDENT, row).await?;
    }
    for planned in planned {
        let is_first = planned.message.kind == NotificationKind::Opened;
        notifications::add_planned(tx, roster, &incident, planned, is_first, now).await?;
    }
    Ok(())
}

async fn open(tx: &mut Tx<'_>) -> Result<Vec<Incident>, StoreError> {
    let read = |row: &Row| row.json_opt("content")?.ok_or_else(|| row.unreadable("content", ""));
    let mut open: Vec<Incident> =
        tx.all(INCIDENTS_OPEN, args![]).await?.iter().map(read).collect::<Result<_, _>>()?;
    open.sort_by_key(|incident| incident.id);
    Ok(open)
}

async fn next(tx: &mut Tx<'_>) -> Result<Option<Timestamp>, StoreError> {
    tx.one(NEXT_INCIDENT, args![]).await?.map_or(Ok(None), |row| row.time_opt("next"))
}

//! Notifications: messages to targets, written in the transaction that changes their incident. One node at a time takes
//! a notification, with a lease, and sends it.

use std::collections::HashMap;
use std::sync::Arc;

use cowhand_core::incident::PlannedNotification;
use cowhand_core::notification::{
    Incident, IncidentSeverity, NotificationKind, NotificationMessage, NotificationState,
};
use cowhand_core::roster::Roster;
use jiff::{SignedDuration, Timestamp};

use super::database::db::{Row, Tx, args};
use super::database::dialect::statements;
use super::{Store, StoreError, jobs};

statements! {
    NUMBER_NOTIFICATION = same "update counters set value = value + 1 where name = 'notification' returning value";
    ADD_NOTIFICATION = same "insert into notifications (number, target, kind, incident, state, message, created_at, not_before, held) \
        values ($1, $2, $3, $4, 'waiting', $5, $6, $7, $8)";
    UNTRIED = locked "select * from notifications where state in ('waiting', 'sending') and state = 'waiting' \
        and incident = $1 and tries = 0";
    OPEN_OF_ROUTE = same "select number from notifications where state in ('waiting', 'sending') and target = $1 \
        and incident = $2 limit 1";
    REPLACE_MESSAGE = same "update notifications set kind = $2, message = $3 where number = $1";
    // A notification waits for the earlier ones about the same incident, so that a target is told about the end last.
    DUE_NOTIFICATION = same "select number from notifications as due where state in ('waiting', 'sending') and held = 0 and not_before <= $1 \
        and not exists (select 1 from notifications as earlier where earlier.state in ('waiting', 'sending') \
        and earlier.target = due.target and earlier.incident = due.incident and earlier.number < due.number) \
        order by not_before, number limit 1";
    LOCK_NOTIFICATION = locked "select * from notifications where number = $1";
    TAKE_NOTIFICATION = same "update notifications set state = 'sending', node = $2, not_before = $3, tries = tries + 1, \
        tried_at = coalesce(tried_at, $4) where number = $1";
    POSTPONE_NOTIFICATION = same "update notifications set state = 'waiting', not_before = $3, last_error = $4 \
        where number = $1 and tries = $2 and state = 'sending'";
    END_NOTIFICATION = same "update notifications set state = $3, ended_at = $4, last_error = $5 \
        where number = $1 and tries = $2 and state = 'sending'";
    WAKE_TARGET = same "update notifications set not_before = $2 where state in ('waiting', 'sending') and state = 'waiting' \
        and target = $1 and tries > 0 and not_before > $2";
    WAKE_ALL = same "update notifications set not_before = $1 where state in ('waiting', 'sending') and state = 'waiting' \
        and tries > 0 and not_before > $1";
    RESUME_NOTIFICATIONS = same "update notifications set not_before = $2 where state in ('waiting', 'sending') \
        and state = 'sending' and node = $1";
    NEXT_NOTIFICATION = same "select min(not_before) as next from notifications as due where state in ('waiting', 'sending') \
        and not exists (select 1 from notifications as earlier where earlier.state in ('waiting', 'sending') \
        and earlier.target = due.target and earlier.incident = due.incident and earlier.number < due.number)";
    TARGETS_TO_GROUP = same "select target from notifications where state in ('waiting', 'sending') and state = 'waiting' \
        and held = 1 and not_before <= $1 group by target order by target";
    TO_GROUP = locked "select * from notifications where state in ('waiting', 'sending') and state = 'waiting' \
        and target = $1 and held = 1 and not_before <= $2";
    GROUP = same "update notifications set state = 'grouped', ended_at = $2, part_of = $3 where number = $1";
    RELEASE_HELD = same "update notifications set held = 0 where number = $1";
    NOTIFICATION = same "select * from notifications where number = $1";
    LAST_NOTIFICATIONS = same "select * from notifications order by number desc limit $1";
    OPEN_NOTIFICATIONS = same "select * from notifications where state in ('waiting', 'sending') \
        order by not_before desc, number desc limit $1";
    FAILED_NOTIFICATIONS = same "select * from notifications where state = 'failed' order by number desc limit $1";
    LAST_SENT = same "select max(number) as number from notifications where state = 'sent' and target = $1";
    HELD = locked "select * from notifications where state in ('waiting', 'sending') and state = 'waiting' and held = 1";
    HOLD_UNTIL = same "update notifications set not_before = $2 where number = $1";
    FORGET_NOTIFICATIONS = same "delete from notifications where number in \
        (select number from notifications where ended_at < $1 order by ended_at limit $2)";
}

/// Time that a node has for one try to send a notification, before another node may take it.
pub const NOTIFICATION_LEASE: SignedDuration = SignedDuration::from_mins(2);
/// Largest number of notifications that [`Store::undelivered_notifications`] looks at.
const MAX_UNDELIVERED: i64 = 10_000;

/// A notification with its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotificationRecord {
    pub id: i64,
    pub target: String,
    pub kind: NotificationKind,
    pub state: NotificationState,
    pub message: NotificationMessage,
    pub created_at: Timestamp,
    /// Time of the next try, or until which quiet hours hold it back; while it is sent, the end of the lease.
    pub not_before: Timestamp,
    pub is_held: bool,
    /// Number of tries that have begun.
    pub tries: u32,
    /// Time of the first try.
    pub tried_at: Option<Timestamp>,
    /// Why the last try failed, or why it was dropped.
    pub last_error: Option<String>,
    pub ended_at: Option<Timestamp>,
    /// The digest that contains it.
    pub part_of: Option<i64>,
}

/// How a try ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotificationEnd {
    Sent,
    Failed { reason: String },
    Dropped { reason: String },
}

/// Which notifications are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotificationFilter {
    All,
    /// Waiting or being sent.
    Open,
    Failed,
}

impl Store {
    /// Takes a notification that is due; no other node gets it before the end of the lease. The result contains the try
    /// that begins now.
    pub async fn take_notification(
        &self,
        node: String,
        now: Timestamp,
    ) -> Result<Option<NotificationRecord>, StoreError> {
        let due = self.read(move |tx| Box::pin(async move { tx.one(DUE_NOTIFICATION, args![now]).await }));
        let Some(due) = due.await? else { return Ok(None) };
        let id: i64 = due.get("number")?;
        self.write(move |tx| {
            Box::pin(async move {
                let Some(row) = tx.one(LOCK_NOTIFICATION, args![id]).await? else { return Ok(None) };
                let mut record = read(&row)?;
                if !record.state.is_open() || record.is_held || record.not_before > now {
                    return Ok(None);
                }
                let until = now.checked_add(NOTIFICATION_LEASE).unwrap_or(Timestamp::MAX);
                tx.execute(TAKE_NOTIFICATION, args![id, node, until, now]).await?;
                record.state = NotificationState::Sending;
                record.tries += 1;
                record.tried_at.get_or_insert(now);
                record.not_before = until;
                Ok(Some(record))
            })
        })
        .await
    }

    /// Schedules another try. Does nothing if the notification was taken again.
    pub async fn postpone_notification(
        &self,
        taken: &NotificationRecord,
        error: String,
        not_before: Timestamp,
    ) -> Result<(), StoreError> {
        let row = args![taken.id, taken.tries, not_before, error];
        self.write(move |tx| Box::pin(async move { tx.execute(POSTPONE_NOTIFICATION, row).await.map(drop) }))
            .await
    }

    /// Records the end of a notification. If it was sent, other notifications to this target that failed before are
    /// due now, because the target can be reached again.
    pub async fn end_notification(
        &self,
        taken: &NotificationRecord,
        end: NotificationEnd,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let (id, tries, target) = (taken.id, taken.tries, taken.target.clone());
        let (state, error) = match end {
            NotificationEnd::Sent => (NotificationState::Sent, None),
            NotificationEnd::Failed { reason } => (NotificationState::Failed, Some(reason)),
            NotificationEnd::Dropped { reason } => (NotificationState::Dropped, Some(reason)),
        };
        self.write(move |tx| {
            Box::pin(async move {
                tx.execute(END_NOTIFICATION, args![id, tries, state.as_str(), now, error]).await?;
                if state == NotificationState::Sent {
                    tx.execute(WAKE_TARGET, args![target, now]).await?;
                }
                Ok(())
            })
        })
        .await
    }

    /// Makes the notifications due that this node was sending. The node has just started, so its former process has
    /// ended.
    pub async fn take_up_notifications(&self, node: String, now: Timestamp) -> Result<(), StoreError> {
        self.write(move |tx| {
            Box::pin(async move { tx.execute(RESUME_NOTIFICATIONS, args![node, now]).await.map(drop) })
        })
        .await
    }

    /// Makes all notifications due whose last try failed, because the config has changed. Notifications that are held
    /// back wait for the end of the new quiet hours.
    pub async fn retry_notifications(&self, roster: Arc<Roster>, now: Timestamp) -> Result<(), StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                wake_all(tx, now).await?;
                for row in tx.all(HELD, args![]).await? {
                    let record = read(&row)?;
                    let until = held_until(&roster, record.message.severity, now).unwrap_or(now);
                    tx.execute(HOLD_UNTIL, args![record.id, until]).await?;
                }
                Ok(())
            })
        })
        .await
    }

    /// Releases the notifications that were held back and are due now. Several notifications to one target become one
    /// digest. Only released notifications can be taken.
    pub async fn group_notifications(&self, now: Timestamp) -> Result<(), StoreError> {
        let targets =
            self.read(move |tx| Box::pin(async move { tx.all(TARGETS_TO_GROUP, args![now]).await }));
        for row in targets.await? {
            let target: String = row.get("target")?;
            self.write(move |tx| Box::pin(async move { group(tx, &target, now).await })).await?;
        }
        Ok(())
    }

    /// Returns the time at which the next notification is due.
    pub async fn next_notification_time(&self) -> Result<Option<Timestamp>, StoreError> {
        self.read(|tx| {
            Box::pin(async move {
                tx.one(NEXT_NOTIFICATION, args![]).await?.map_or(Ok(None), |row| row.time_opt("next"))
            })
        })
        .await
    }

    /// Adds a message that tests a target, and returns its number. It is due at once, also in quiet hours.
    pub async fn add_test_notification(
        &self,
        target: String,
        message: NotificationMessage,
        now: Timestamp,
    ) -> Result<i64, StoreError> {
        self.write(move |tx| {
            Box::pin(async move { add(tx, &target, None, &message, Hold { until: None, now }).await })
        })
        .await
    }

    pub async fn notification(&self, id: i64) -> Result<Option<NotificationRecord>, StoreError> {
        self.read(move |tx| {
            Box::pin(async move { tx.one(NOTIFICATION, args![id]).await?.as_ref().map(read).transpose() })
        })
        .await
    }

    /// Returns notifications, the newest first.
    pub async fn notifications(
        &self,
        filter: NotificationFilter,
        limit: u32,
    ) -> Result<Vec<NotificationRecord>, StoreError> {
        let statement = match filter {
            NotificationFilter::All => LAST_NOTIFICATIONS,
            NotificationFilter::Open => OPEN_NOTIFICATIONS,
            NotificationFilter::Failed => FAILED_NOTIFICATIONS,
        };
        self.read(move |tx| {
            Box::pin(async move {
                let rows = tx.all(statement, args![limit]).await?;
                let mut records = rows.iter().map(read).collect::<Result<Vec<_>, _>>()?;
                records.sort_by_key(|record| std::cmp::Reverse(record.id));
                Ok(records)
            })
        })
        .await
    }

    /// Returns the notifications that could not be delivered: those whose last try failed, and those that are not
    /// tried again. The latter are left out if a later notification reached the target. Tests of a target are left out.
    /// The newest comes first.
    pub async fn undelivered_notifications(&self) -> Result<Vec<NotificationRecord>, StoreError> {
        self.read(|tx| {
            Box::pin(async move {
                let mut rows = tx.all(OPEN_NOTIFICATIONS, args![MAX_UNDELIVERED]).await?;
                rows.extend(tx.all(FAILED_NOTIFICATIONS, args![MAX_UNDELIVERED]).await?);
                let mut all = rows.iter().map(read).collect::<Result<Vec<_>, _>>()?;
                all.retain(|record| record.last_error.is_some() && record.kind != NotificationKind::Test);
                all.sort_by_key(|record| std::cmp::Reverse(record.id));
                let mut last_sent: HashMap<String, i64> = HashMap::new();
                for record in all.iter().filter(|record| record.state == NotificationState::Failed) {
                    if !last_sent.contains_key(&record.target) {
                        let row = tx.one(LAST_SENT, args![record.target.as_str()]).await?;
                        let number: Option<i64> = row.map_or(Ok(None), |row| row.get("number"))?;
                        last_sent.insert(record.target.clone(), number.unwrap_or_default());
                    }
                }
                let is_outdated = |record: &NotificationRecord| {
                    let sent = last_sent.get(&record.target).copied().unwrap_or_default();
                    record.state == NotificationState::Failed && record.id < sent
                };
                all.retain(|record| !is_outdated(record));
                Ok(all)
            })
        })
        .await
    }
}

/// Removes at most `limit` records of notifications that ended before this time, and returns their number.
pub(super) async fn forget(tx: &mut Tx<'_>, before: Timestamp, limit: u32) -> Result<u64, StoreError> {
    tx.execute(FORGET_NOTIFICATIONS, args![before, limit]).await
}

/// Makes failed tries due now.
async fn wake_all(tx: &mut Tx<'_>, now: Timestamp) -> Result<(), StoreError> {
    tx.execute(WAKE_ALL, args![now]).await.map(drop)
}

/// Makes failed tries due now, because the clock was set back.
pub(super) async fn clock_set_back(tx: &mut Tx<'_>, now: Timestamp) -> Result<(), StoreError> {
    wake_all(tx, now).await
}

/// When a new notification may be sent.
#[derive(Clone, Copy)]
struct Hold {
    /// End of the quiet hours; none if they do not hold it back.
    until: Option<Timestamp>,
    now: Timestamp,
}

/// Adds a notification about an incident. A message that quiet hours hold back is replaced by a message about the end.
/// There is no reminder while an earlier message about the incident waits.
pub(super) async fn add_planned(
    tx: &mut Tx<'_>,
    roster: &Roster,
    incident: &Incident,
    planned: PlannedNotification,
    is_first: bool,
    now: Timestamp,
) -> Result<(), StoreError> {
    let PlannedNotification { target, message } = planned;
    if !is_first {
        for row in tx.all(UNTRIED, args![incident.id]).await? {
            let record = read(&row)?;
            if record.target == target && record.is_held && record.not_before > now {
                let kind = if message.kind == NotificationKind::Ended { message.kind } else { record.kind };
                let message = NotificationMessage { kind, ..message };
                let row = args![record.id, kind.as_str(), jobs::to_json(&message)?];
                return tx.execute(REPLACE_MESSAGE, row).await.map(drop);
            }
        }
        let waits = tx.one(OPEN_OF_ROUTE, args![target.as_str(), incident.id]).await?.is_some();
        if waits && matches!(message.kind, NotificationKind::Reminder | NotificationKind::Update) {
            return Ok(());
        }
    }
    let until = held_until(roster, incident.severity(), now);
    add(tx, &target, Some(incident.id), &message, Hold { until, now }).await.map(drop)
}

/// Returns the end of the quiet hours that hold back a notification of this severity.
fn held_until(roster: &Roster, severity: IncidentSeverity, now: Timestamp) -> Option<Timestamp> {
    let quiet = roster.notifications.quiet_hours.as_ref()?;
    quiet.held_until(severity, now, roster.zone())
}

/// Updates the count in messages about an incident that were never tried, after the incident has happened again.
pub(super) async fn refresh(
    tx: &mut Tx<'_>,
    incident: &mut Incident,
    now: Timestamp,
) -> Result<(), StoreError> {
    for row in tx.all(UNTRIED, args![incident.id]).await? {
        let record = read(&row)?;
        if record.kind == NotificationKind::Ended {
            continue;
        }
        let message = NotificationMessage::of(incident, record.kind, None, now);
        tx.execute(REPLACE_MESSAGE, args![record.id, record.kind.as_str(), jobs::to_json(&message)?]).await?;
        let routes = incident.routes.iter_mut().filter(|route| route.target == record.target);
        routes.for_each(|route| route.told = incident.count);
    }
    Ok(())
}

async fn group(tx: &mut Tx<'_>, target: &str, now: Timestamp) -> Result<(), StoreError> {
    let rows = tx.all(TO_GROUP, args![target, now]).await?;
    let mut records = rows.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    records.sort_by_key(|record| record.id);
    // Another node may have grouped them.
    if let [] | [_] = records[..] {
        for record in records {
            tx.execute(RELEASE_HELD, args![record.id]).await?;
        }
        return Ok(());
    }
    let messages = records.iter().map(|record| record.message.clone()).collect();
    let digest = NotificationMessage::digest(messages, now);
    let id = add(tx, target, None, &digest, Hold { until: None, now }).await?;
    for record in records {
        tx.execute(GROUP, args![record.id, now, id]).await?;
    }
    Ok(())
}

async fn add(
    tx: &mut Tx<'_>,
    target: &str,
    incident: Option<i64>,
    message: &NotificationMessage,
    hold: Hold,
) -> Result<i64, StoreError> {
    let row = tx.one(NUMBER_NOTIFICATION, args![]).await?;
    let row = row.ok_or_else(|| StoreError::Unreadable { what: "no notification counter".to_owned() })?;
    let id: i64 = row.get("value")?;
    let (not_before, is_held) = (hold.until.unwrap_or(hold.now), i64::from(hold.until.is_some()));
    let message_json = jobs::to_json(message)?;
    let row = args![id, target, message.kind.as_str(), incident, message_json, hold.now, not_before, is_held];
    tx.execute(ADD_NOTIFICATION, row).await?;
    Ok(id)
}

fn read(row: &Row) -> Result<NotificationRecord, StoreError> {
    Ok(NotificationRecord {
        id: row.get("number")?,
        target: row.get("target")?,
        kind: row.parse("kind")?,
        state: row.parse("state")?,
        message: row.json_opt("message")?.ok_or_else(|| row.unreadable("message", ""))?,
        created_at: row.time("created_at")?,
        not_before: row.time("not_before")?,
        is_held: row.get::<i64>("held")? != 0,
        tries: row.count("tries")?,
        tried_at: row.time_opt("tried_at")?,
        last_error: row.get("last_error")?,
        ended_at: row.time_opt("ended_at")?,
        part_of: row.get("part_of")?,
    })
}

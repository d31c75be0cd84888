//! Leases of running jobs. The node that runs an attempt renews its lease.
//!
//! On a database that several nodes share, a lease expires by the clock of the database. After an outage of the database
//! all leases have expired, although all nodes may be healthy. Therefore each node records since when it reaches the
//! database without a gap, and an expired lease is settled only after one node has reached it for the length of the lease
//! ([`ExpiringLease::settled_from`]).

use cowhand_core::id::{AgentName, JobId, ScheduleName};
use cowhand_core::job::Job;
use cowhand_core::lease::{Contact, ExpiringLease, OnLostLease, max_contact_gap};
use cowhand_core::moment::Moment;
use jiff::{SignedDuration, Timestamp};

use super::database::db::{Arg, Row, Tx, args};
use super::database::dialect::{Statement, statements};
use super::{Store, StoreError, jobs};

statements! {
    NEXT_EPOCH = same "update jobs set epoch = epoch + 1 where id = $1 returning epoch";
    ADD_LEASE = same "insert into leases (job_id, attempt, node, epoch, expires_at, boot, length, on_lost) \
        values ($1, $2, $3, $4, $5, $6, $7, $8)";
    LOCK_LEASES = locked "select job_id from leases where node = $1 order by job_id";
    RENEW_LEASES =
        sqlite "update leases set expires_at = $2, boot = $3 where node = $1 \
            and job_id in (select value from json_each($4)) returning job_id, epoch, on_lost"
        postgres "update leases set expires_at = $2, boot = $3 where node = $1 \
            and job_id = any (array(select json_array_elements_text(($4::text)::json))) returning job_id, epoch, on_lost";
    ADOPT_LEASES = same "update leases set expires_at = $2, boot = $3 where node = $1 returning job_id, epoch, on_lost";
    // $3 is the start of the longest gap that counts as uninterrupted.
    CONTACT = same "update nodes set contact_since = case when contact_at >= $3 then contact_since else $2 end, \
        contact_at = $2 where name = $1";
    CONTACTS = same "select contact_since, contact_at from nodes where contact_at is not null";
    OVERDUE = same "select leases.job_id, leases.node, leases.expires_at, leases.boot, leases.length, leases.on_lost, \
        jobs.agent, jobs.schedule, jobs.cancel_asked_at from leases join jobs on jobs.id = leases.job_id \
        where leases.expires_at <= $1 order by leases.job_id";
}

/// A lease that the node still holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldLease {
    pub job: JobId,
    pub epoch: i64,
    /// What happens if the node cannot renew the lease.
    pub on_lost: OnLostLease,
}

/// A lease on a shared database that its node has not renewed in time, and that nobody has settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverdueLease {
    pub job: JobId,
    pub agent: AgentName,
    pub schedule: Option<ScheduleName>,
    pub node: String,
    /// Expiry of the lease, by the clock of the caller.
    pub expired_at: Timestamp,
    pub on_lost: OnLostLease,
    /// Time from which another node may settle the attempt as lost; `None` if no node may.
    pub settled_from: Option<Timestamp>,
}

/// How long a new lease is valid, and what happens if it is not renewed.
#[derive(Debug, Clone, Copy)]
pub(super) struct LeaseTerms {
    pub(super) length: SignedDuration,
    pub(super) on_lost: OnLostLease,
}

impl Store {
    /// Extends the node's leases on these jobs, including expired leases that nobody has settled. Returns the leases
    /// that the node still holds. The other leases are lost. Also records that the node reaches the database; a node of
    /// a shared database does this without jobs, too.
    pub async fn renew(
        &self,
        node: String,
        jobs: Vec<JobId>,
        lease: SignedDuration,
        now: Timestamp,
    ) -> Result<Vec<HeldLease>, StoreError> {
        let job_ids = vec![Arg::from(jobs::to_json(&jobs)?)];
        self.write(move |tx| {
            Box::pin(async move {
                let held = extend_leases(tx, node.clone(), RENEW_LEASES, job_ids, (now, lease)).await?;
                record_contact(tx, &node, lease, now).await?;
                Ok(held)
            })
        })
        .await
    }

    /// Extends the lease of a job whose attempt has ended, for the time until the next start of the daemon.
    pub async fn extend_lease(
        &self,
        node: String,
        job: JobId,
        lease: SignedDuration,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let job_ids = vec![Arg::from(jobs::to_json(&[job])?)];
        let extended =
            self.write(move |tx| Box::pin(extend_leases(tx, node, RENEW_LEASES, job_ids, (now, lease))));
        extended.await.map(drop)
    }

    /// Takes up the leases of a node after its restart, including expired leases that nobody has settled.
    pub async fn adopt(
        &self,
        node: String,
        lease: SignedDuration,
        now: Timestamp,
    ) -> Result<Vec<HeldLease>, StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                let held = extend_leases(tx, node.clone(), ADOPT_LEASES, Vec::new(), (now, lease)).await?;
                record_contact(tx, &node, lease, now).await?;
                Ok(held)
            })
        })
        .await
    }

    /// Returns the leases that their nodes have not renewed in time. A file that only one node uses has none.
    pub async fn overdue_leases(&self, now: Timestamp) -> Result<Vec<OverdueLease>, StoreError> {
        if !self.is_postgres() {
            return Ok(Vec::new());
        }
        self.read(move |tx| {
            Box::pin(async move {
                let (clock, contacts) = (tx.lease_clock(now).await?, contacts(tx).await?);
                let here = |at: Moment| Moment::from(now).plus(at.since(clock)).wall;
                let read = |row: &Row| {
                    let is_cancelled = row.time_opt("cancel_asked_at")?.is_some();
                    let from = settled_from(row, is_cancelled, &contacts, clock)?;
                    Ok(OverdueLease {
                        job: row.parse("job_id")?,
                        agent: row.parse("agent")?,
                        schedule: row.parse_opt("schedule")?,
                        node: row.get("node")?,
                        expired_at: here(row.time("expires_at")?.into()),
                        on_lost: row.parse("on_lost")?,
                        settled_from: from.map(here),
                    })
                };
                tx.all(OVERDUE, args![clock.wall]).await?.iter().map(read).collect()
            })
        })
        .await
    }
}

/// Extends leases. The rows are locked in a fixed order, so that two transactions cannot wait for each other.
async fn extend_leases(
    tx: &mut Tx<'_>,
    node: String,
    statement: Statement,
    job_ids: Vec<Arg>,
    (now, lease): (Timestamp, SignedDuration),
) -> Result<Vec<HeldLease>, StoreError> {
    tx.all(LOCK_LEASES, args![node.as_str()]).await?;
    let until = tx.lease_clock(now).await?.plus(lease);
    let args = [args![node, until.wall, until.boot], job_ids].concat();
    let rows = tx.all(statement, args).await?;
    let held = |row: &Row| {
        let (job, epoch, on_lost) = (row.parse("job_id")?, row.get("epoch")?, row.parse("on_lost")?);
        Ok(HeldLease { job, epoch, on_lost })
    };
    rows.iter().map(held).collect()
}

/// Records that a node reaches the database now. A file that only one node uses needs no such record.
async fn record_contact(
    tx: &mut Tx<'_>,
    node: &str,
    lease: SignedDuration,
    now: Timestamp,
) -> Result<(), StoreError> {
    if !tx.is_shared() {
        return Ok(());
    }
    let clock = tx.lease_clock(now).await?.wall;
    let gap_from = clock.checked_sub(max_contact_gap(lease)).unwrap_or(Timestamp::MIN);
    tx.execute(CONTACT, args![node, clock, gap_from]).await.map(drop)
}

/// Takes the lease of a job for a new attempt, and returns the new epoch.
pub(super) async fn take(
    tx: &mut Tx<'_>,
    job: &Job,
    node: &str,
    terms: LeaseTerms,
    now: Timestamp,
) -> Result<i64, StoreError> {
    let until = tx.lease_clock(now).await?.plus(terms.length);
    let row = tx.one(NEXT_EPOCH, args![job.id().as_str()]).await?;
    let epoch: i64 = row.ok_or_else(|| StoreError::NoJob(job.id().clone()))?.get("epoch")?;
    let length = i64::try_from(terms.length.as_micros()).unwrap_or(i64::MAX);
    let row = args![
        job.id().as_str(),
        job.attempts(),
        node,
        epoch,
        until.wall,
        until.boot,
        length,
        terms.on_lost.as_str()
    ];
    tx.execute(ADD_LEASE, row).await?;
    Ok(epoch)
}

/// Returns the contacts of all nodes with a shared database; an empty list on a file that only one node uses.
pub(super) async fn contacts(tx: &mut Tx<'_>) -> Result<Vec<Contact>, StoreError> {
    if !tx.is_shared() {
        return Ok(Vec::new());
    }
    let read = |row: &Row| Ok(Contact { since: row.time("contact_since")?, at: row.time("contact_at")? });
    tx.all(CONTACTS, args![]).await?.iter().map(read).collect()
}

/// Returns the time from which any node may settle the attempt of a lease, by the clock of leases; `None` if no node
/// may. The row needs the columns of `leases`.
pub(super) fn settled_from(
    row: &Row,
    is_cancelled: bool,
    contacts: &[Contact],
    clock: Moment,
) -> Result<Option<Moment>, StoreError> {
    let Some(expires_at) = row.moment_opt("expires_at", "boot")? else {
        return Ok(Some(Timestamp::MIN.into()));
    };
    if contacts.is_empty() {
        return Ok(Some(expires_at));
    }
    let length = SignedDuration::from_micros(row.get("length")?);
    let lease =
        ExpiringLease { expires_at: expires_at.wall, length, on_lost: row.parse("on_lost")?, is_cancelled };
    Ok(lease.settled_from(contacts, clock.wall).map(Moment::from))
}

//! Providers: free slots, and the end of usage limits.
//!
//! A claim and a settlement both lock the provider before everything else. A transaction that locked an agent or a job
//! first could wait for a claim that waits for that agent or job.

use std::collections::HashMap;

use cowhand_core::attempt::UsageLimit;
use cowhand_core::event::Fact;
use cowhand_core::id::JobId;
use cowhand_core::provider::{LimitedProvider, Parked, ProviderState, ProviderWait};
use jiff::Timestamp;

use super::database::db::{Row, Tx, args};
use super::database::dialect::statements;
use super::database::event_log::NewEvent;
use super::{Store, StoreError};

statements! {
    LOCK_PROVIDER = sqlite "select $1 as name" postgres "select $1::text as name, pg_advisory_xact_lock(hashtextextended('provider ' || $1, 0))";
    GET_PROVIDER = same "select * from providers where name = $1";
    ALL_PROVIDERS = same "select * from providers order by name";
    RUNNING_OF_PROVIDER = same "select count(*) as running from jobs where provider = $1 and status = 'running'";
    RUNS_AT = same "update jobs set provider = $2 where id = $1";
    PROVIDER_OF_JOB = same "select provider from jobs where id = $1";
    STARTED = same "insert into providers (name, last_start_at) values ($1, $2) \
        on conflict (name) do update set last_start_at = excluded.last_start_at";
    PARK = same "insert into providers (name, parked_since, parked_until, message, times) values ($1, $2, $3, $4, $5) \
        on conflict (name) do update set parked_since = excluded.parked_since, parked_until = excluded.parked_until, \
        message = excluded.message, times = excluded.times";
    UNPARK = same "update providers set parked_until = $2, times = 0 where name = $1 and parked_until > $2";
}

impl Store {
    pub async fn providers(&self) -> Result<HashMap<String, ProviderState>, StoreError> {
        self.read(|tx| Box::pin(all(tx))).await
    }

    /// Lets jobs start again at a parked provider, and returns whether the provider was parked.
    pub async fn unpark(&self, provider: String, now: Timestamp) -> Result<bool, StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                lock(tx, &provider).await?;
                if tx.execute(UNPARK, args![provider.as_str(), now]).await? == 0 {
                    return Ok(false);
                }
                tx.record(NewEvent::of_fleet(Fact::ProviderUnparked { provider }, now));
                Ok(true)
            })
        })
        .await
    }
}

pub(super) async fn all(tx: &mut Tx<'_>) -> Result<HashMap<String, ProviderState>, StoreError> {
    let rows = tx.all(ALL_PROVIDERS, args![]).await?;
    rows.iter().map(|row| Ok((row.get("name")?, read(row)?))).collect()
}

/// Returns the reason why the provider takes no job now. Call this function before anything else is locked, because all
/// starts at a provider wait for each other here.
pub(super) async fn wait(
    tx: &mut Tx<'_>,
    slot: Option<&LimitedProvider>,
    now: Timestamp,
) -> Result<Option<ProviderWait>, StoreError> {
    let Some(slot) = slot else { return Ok(None) };
    let state = lock(tx, &slot.provider).await?;
    let running = match slot.limits.max_concurrent {
        Some(_) => {
            let row = tx.one(RUNNING_OF_PROVIDER, args![slot.provider.as_str()]).await?;
            row.map_or(Ok(0), |row| row.get::<i64>("running"))?
        }
        None => 0,
    };
    Ok(slot.wait(&state, u32::try_from(running).unwrap_or(u32::MAX), now))
}

/// Records the provider of a job. Also records the time of the job's start if the provider has `start_every`.
pub(super) async fn started(
    tx: &mut Tx<'_>,
    job: &JobId,
    slot: Option<&LimitedProvider>,
    now: Timestamp,
) -> Result<(), StoreError> {
    tx.execute(RUNS_AT, args![job.as_str(), slot.map(|slot| slot.provider.as_str())]).await?;
    if let Some(slot) = slot.filter(|slot| slot.limits.start_every.is_some()) {
        tx.execute(STARTED, args![slot.provider.as_str(), now]).await?;
    }
    Ok(())
}

/// Provider of a job, locked until the end of the transaction.
pub(super) struct LockedProvider {
    name: String,
    parked: Option<Parked>,
}

/// Locks the provider of a job. The provider of a running job does not change, so the row of the job can be locked
/// later.
pub(super) async fn lock_of_job(tx: &mut Tx<'_>, job: &JobId) -> Result<Option<LockedProvider>, StoreError> {
    let row = tx.one(PROVIDER_OF_JOB, args![job.as_str()]).await?;
    let Some(name) = row.map_or(Ok(None), |row| row.get::<Option<String>>("provider"))? else {
        return Ok(None);
    };
    let parked = lock(tx, &name).await?.parked;
    Ok(Some(LockedProvider { name, parked }))
}

/// Parks the provider of a job that reached a usage limit.
pub(super) async fn park(
    tx: &mut Tx<'_>,
    provider: LockedProvider,
    limit: UsageLimit,
    message: &str,
    now: Timestamp,
) -> Result<Parked, StoreError> {
    let LockedProvider { name, parked: before } = provider;
    let parked = Parked::after_limit(before.as_ref(), name, message.to_owned(), limit.resets_at, now);
    let row =
        args![parked.provider.as_str(), parked.since, parked.until, parked.message.as_str(), parked.times];
    tx.execute(PARK, row).await?;
    Ok(parked)
}

async fn lock(tx: &mut Tx<'_>, provider: &str) -> Result<ProviderState, StoreError> {
    tx.one(LOCK_PROVIDER, args![provider]).await?;
    tx.one(GET_PROVIDER, args![provider]).await?.as_ref().map_or_else(|| Ok(ProviderState::default()), read)
}

fn read(row: &Row) -> Result<ProviderState, StoreError> {
    let (since, until) = (row.time_opt("parked_since")?, row.time_opt("parked_until")?);
    let parked = match since.zip(until) {
        Some((since, until)) => Some(Parked {
            provider: row.get("name")?,
            since,
            until,
            message: row.get::<Option<String>>("message")?.unwrap_or_default(),
            times: row.count("times")?,
        }),
        None => None,
    };
    Ok(ProviderState { parked, last_start: row.time_opt("last_start_at")? })
}

//! Providers: free slots, the end of usage limits, and reports about usage windows.
//!
//! A claim and a settlement both lock the provider before everything else. A transaction that locked an agent or a job
//! first could wait for a claim that waits for that agent or job.

use std::collections::HashMap;

use cowhand_core::attempt::UsageLimit;
use cowhand_core::budget::Amount;
use cowhand_core::event::Fact;
use cowhand_core::id::JobId;
use cowhand_core::job::Job;
use cowhand_core::percent::Percent;
use cowhand_core::provider::{
    LimitedProvider, Parked, ProviderState, ProviderWait, ReachedReserve, UsageWindow, WindowUsage,
};
use jiff::{SignedDuration, Timestamp};

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
    ALL_WINDOWS = same "select * from provider_windows order by provider, name";
    WINDOWS_OF_PROVIDER = same "select * from provider_windows where provider = $1 order by name";
    SAVE_WINDOW = same "insert into provider_windows (provider, name, used, resets_at, reported_at) values ($1, $2, $3, $4, $5) \
        on conflict (provider, name) do update set used = excluded.used, resets_at = excluded.resets_at, \
        reported_at = excluded.reported_at";
    IS_AUTOMATIC = same "select automatic from jobs where id = $1";
    UNPARK = same "update providers set parked_until = $2, times = 0 where name = $1 and parked_until > $2";
}

/// A job that may start.
#[derive(Debug, Clone, Copy)]
pub(super) enum StartCandidate<'a> {
    /// A job that waits, with the spending of its earlier attempts.
    Existing { job: &'a JobId, spent: Amount },
    /// A job that is not created yet.
    New { automatic: bool },
}

impl<'a> StartCandidate<'a> {
    pub(super) fn waiting(job: &'a Job) -> Self {
        Self::Existing { job: job.id(), spent: job.usage().map(Amount::of).unwrap_or_default() }
    }

    /// Returns the job, if it is created already.
    pub(super) const fn job(self) -> Option<&'a JobId> {
        match self {
            Self::Existing { job, .. } => Some(job),
            Self::New { .. } => None,
        }
    }

    pub(super) fn spent(self) -> Amount {
        match self {
            Self::Existing { spent, .. } => spent,
            Self::New { .. } => Amount::default(),
        }
    }
}

impl Store {
    pub async fn providers(&self) -> Result<HashMap<String, ProviderState>, StoreError> {
        self.read(|tx| Box::pin(all(tx))).await
    }

    /// Returns the provider at which a job runs or ran last.
    pub async fn provider_of(&self, job: JobId) -> Result<Option<String>, StoreError> {
        self.read(move |tx| Box::pin(async move { provider_of_job(tx, &job).await })).await
    }

    /// Stores reports about the usage windows of a provider; older reports than the stored ones are left out. Records an
    /// event if the reports change the reserve that holds automatic jobs back. Returns that reserve.
    pub async fn record_windows(
        &self,
        slot: LimitedProvider,
        reports: Vec<WindowUsage>,
        now: Timestamp,
    ) -> Result<Option<ReachedReserve>, StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                lock(tx, &slot.provider).await?;
                let before = with_windows(tx, &slot.provider, ProviderState::default()).await?;
                let mut after = before.clone();
                for report in reports {
                    let stored = before.windows.iter().find(|stored| stored.window == report.window);
                    if stored.is_some_and(|stored| !report.replaces(stored, now)) {
                        continue;
                    }
                    after.windows.retain(|window| window.window != report.window);
                    after.windows.push(report);
                    let WindowUsage { window, used, resets_at, reported_at } = report;
                    let name = slot.provider.as_str();
                    let row = args![name, window.as_str(), i64::from(used.tenths()), resets_at, reported_at];
                    tx.execute(SAVE_WINDOW, row).await?;
                }
                let (was, is) = (slot.reached_reserve(&before, now), slot.reached_reserve(&after, now));
                if is_other_reserve(was.as_ref(), is.as_ref()) {
                    let provider = slot.provider;
                    let released = Fact::ProviderReleased { provider };
                    tx.record(NewEvent::of_fleet(is.clone().map_or(released, Fact::ProviderReserved), now));
                }
                Ok(is)
            })
        })
        .await
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
    let states = rows.iter().map(|row| Ok((row.get("name")?, read(row)?)));
    let mut states = states.collect::<Result<HashMap<String, ProviderState>, StoreError>>()?;
    for row in tx.all(ALL_WINDOWS, args![]).await? {
        states.entry(row.get("provider")?).or_default().windows.push(read_window(&row)?);
    }
    Ok(states)
}

async fn with_windows(
    tx: &mut Tx<'_>,
    provider: &str,
    state: ProviderState,
) -> Result<ProviderState, StoreError> {
    let rows = tx.all(WINDOWS_OF_PROVIDER, args![provider]).await?;
    let windows = rows.iter().map(read_window).collect::<Result<_, _>>()?;
    Ok(ProviderState { windows, ..state })
}

fn read_window(row: &Row) -> Result<WindowUsage, StoreError> {
    Ok(WindowUsage {
        window: row.parse::<UsageWindow>("name")?,
        used: Percent::of_tenths(row.count("used")?),
        resets_at: row.time("resets_at")?,
        reported_at: row.time("reported_at")?,
    })
}

/// Time by which the end of a reserve may change without an event. Programs round the reset of a window differently.
const RESERVE_TOLERANCE: SignedDuration = SignedDuration::from_mins(1);

/// Checks whether a report has changed the reserve that holds automatic jobs back, or its end.
fn is_other_reserve(was: Option<&ReachedReserve>, is: Option<&ReachedReserve>) -> bool {
    match (was, is) {
        (Some(was), Some(is)) => {
            was.window != is.window || is.until.duration_since(was.until).abs() > RESERVE_TOLERANCE
        }
        (was, is) => was.is_some() != is.is_some(),
    }
}

/// Returns the reason why the provider takes no job now. Call this function before anything else is locked, because all
/// starts at a provider wait for each other here.
pub(super) async fn wait(
    tx: &mut Tx<'_>,
    slot: Option<&LimitedProvider>,
    candidate: StartCandidate<'_>,
    now: Timestamp,
) -> Result<Option<ProviderWait>, StoreError> {
    let Some(slot) = slot else { return Ok(None) };
    let mut state = lock(tx, &slot.provider).await?;
    let mut reserve = None;
    if slot.limits.has_reserve() && is_automatic(tx, candidate).await? {
        state = with_windows(tx, &slot.provider, state).await?;
        reserve = slot.reached_reserve(&state, now);
    }
    let running = match slot.limits.max_concurrent {
        Some(_) => {
            let row = tx.one(RUNNING_OF_PROVIDER, args![slot.provider.as_str()]).await?;
            row.map_or(Ok(0), |row| row.get::<i64>("running"))?
        }
        None => 0,
    };
    Ok(slot.wait(&state, reserve.as_ref(), u32::try_from(running).unwrap_or(u32::MAX), now))
}

/// Checks whether the job is automatic. This never changes, so the row of the job can be locked later.
async fn is_automatic(tx: &mut Tx<'_>, candidate: StartCandidate<'_>) -> Result<bool, StoreError> {
    match candidate {
        StartCandidate::Existing { job, .. } => {
            let row = tx.one(IS_AUTOMATIC, args![job.as_str()]).await?;
            Ok(row.map_or(Ok(0), |row| row.get::<i64>("automatic"))? == 1)
        }
        StartCandidate::New { automatic } => Ok(automatic),
    }
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
    let Some(name) = provider_of_job(tx, job).await? else { return Ok(None) };
    let parked = lock(tx, &name).await?.parked;
    Ok(Some(LockedProvider { name, parked }))
}

async fn provider_of_job(tx: &mut Tx<'_>, job: &JobId) -> Result<Option<String>, StoreError> {
    let row = tx.one(PROVIDER_OF_JOB, args![job.as_str()]).await?;
    row.map_or(Ok(None), |row| row.get("provider"))
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
    Ok(ProviderState { parked, last_start: row.time_opt("last_start_at")?, windows: Vec::new() })
}

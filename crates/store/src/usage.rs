//! Usage: sums by quarter of an hour, agent, schedule and model; sums by work item; and the usage of single jobs.

use cowhand_core::budget::{self, Amount};
use cowhand_core::cut::cut;
use cowhand_core::id::{AgentName, JobId, ScheduleName};
use cowhand_core::job::{Job, JobStatus, JobUsage, MAX_TOKENS, ModelUsage};
use cowhand_core::work::WorkItem;
use jiff::Timestamp;

use super::database::db::{Row, Tx, args};
use super::database::dialect::statements;
use super::{Store, StoreError};

statements! {
    ADD_USAGE = same "insert into usage (slot, agent, schedule, model, attempts, input_tokens, output_tokens, \
        cache_creation_tokens, cache_read_tokens, cost_microdollars, assumed_microdollars) \
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) \
        on conflict (slot, agent, schedule, model) do update set attempts = usage.attempts + excluded.attempts, \
        input_tokens = usage.input_tokens + excluded.input_tokens, \
        output_tokens = usage.output_tokens + excluded.output_tokens, \
        cache_creation_tokens = usage.cache_creation_tokens + excluded.cache_creation_tokens, \
        cache_read_tokens = usage.cache_read_tokens + excluded.cache_read_tokens, \
        cost_microdollars = usage.cost_microdollars + excluded.cost_microdollars, \
        assumed_microdollars = usage.assumed_microdollars + excluded.assumed_microdollars";
    USAGE_IN_ALL = same "select agent, model, cast(sum(input_tokens) as bigint) as input_tokens, \
        cast(sum(output_tokens) as bigint) as output_tokens, \
        cast(sum(cache_creation_tokens) as bigint) as cache_creation_tokens, \
        cast(sum(cache_read_tokens) as bigint) as cache_read_tokens, \
        cast(sum(cost_microdollars) as bigint) as cost_microdollars from usage group by agent, model order by agent, model";
    ADD_USAGE_OF_ITEM = same "insert into usage_of_items (item, title, attempts, input_tokens, output_tokens, \
        cache_creation_tokens, cache_read_tokens, cost_microdollars, last_at, assumed_microdollars) \
        values ($1, $2, 1, $3, $4, $5, $6, $7, $8, $9) \
        on conflict (item) do update set title = excluded.title, attempts = usage_of_items.attempts + 1, \
        input_tokens = usage_of_items.input_tokens + excluded.input_tokens, \
        output_tokens = usage_of_items.output_tokens + excluded.output_tokens, \
        cache_creation_tokens = usage_of_items.cache_creation_tokens + excluded.cache_creation_tokens, \
        cache_read_tokens = usage_of_items.cache_read_tokens + excluded.cache_read_tokens, \
        cost_microdollars = usage_of_items.cost_microdollars + excluded.cost_microdollars, last_at = excluded.last_at, \
        assumed_microdollars = usage_of_items.assumed_microdollars + excluded.assumed_microdollars";
    USAGE_OF_ITEM = same "select * from usage_of_items where item = $1";
    USAGE_OF_ITEMS = same "select * from usage_of_items where last_at >= $1 and last_at < $2 \
        order by cost_microdollars desc, input_tokens + output_tokens desc, item limit $3";
    USAGE_OF_JOBS = same "select jobs.id, jobs.agent, jobs.schedule, jobs.status, count(*) as attempts, \
        cast(sum(coalesce(counted.microdollars, 0) + counted.assumed_microdollars) as bigint) as microdollars, \
        cast(sum(counted.assumed_microdollars) as bigint) as assumed_microdollars, \
        cast(sum(coalesce(counted.tokens, 0)) as bigint) as tokens from (\
        select job_id, microdollars, assumed_microdollars, tokens from attempts \
        where ended_at >= $1 and ended_at < $2 and usage is not null \
        union all select attempts.job_id, attempts.microdollars, attempts.assumed_microdollars, attempts.tokens \
        from jobs as running join attempts on attempts.job_id = running.id and attempts.number = running.attempt \
        where running.status = 'running' and attempts.usage is not null and $5 = 1) as counted \
        join jobs on jobs.id = counted.job_id where ($4 = '' or jobs.agent = $4) group by jobs.id, jobs.agent, jobs.schedule, jobs.status order by microdollars desc, tokens desc, jobs.id limit $3";
    USAGE_OF_RUNNING = same "select jobs.agent, jobs.schedule, jobs.work_item, attempts.usage \
        from jobs join attempts on attempts.job_id = jobs.id and attempts.number = jobs.attempt \
        where jobs.status = 'running' and attempts.usage is not null";
    USAGE_BETWEEN = same "select * from usage where slot >= $1 and slot < $2 order by slot, agent, schedule, model";
}

/// Usage of the attempts of one agent, schedule and model that ended in one quarter of an hour. The current quarter
/// also includes what running attempts have reported so far.
#[derive(Debug, Clone, PartialEq)]
pub struct UsageSlot {
    /// Start of the quarter.
    pub slot: Timestamp,
    pub agent: AgentName,
    /// Schedule of the attempts; `None` if no schedule fired them.
    pub schedule: Option<ScheduleName>,
    /// Model; `None` in the row that counts the attempts and has the costs without a known model. The rows of models
    /// count no attempts.
    pub model: Option<String>,
    pub attempts: u64,
    pub usage: ModelUsage,
    /// Assumed part of the cost.
    pub assumed_usd: Option<f64>,
}

/// Usage of all jobs for a work item.
#[derive(Debug, Clone, PartialEq)]
pub struct SpentOnItem {
    pub item: String,
    pub title: String,
    pub attempts: u64,
    pub usage: ModelUsage,
    /// Assumed part of the cost.
    pub assumed_usd: Option<f64>,
    /// End of the last attempt; now, if an attempt runs and has reported usage.
    pub last_at: Timestamp,
}

/// Usage of the attempts of one job that ended in a period, or that run and have reported usage.
#[derive(Debug, Clone, PartialEq)]
pub struct SpentOnJob {
    pub job: JobId,
    pub agent: AgentName,
    pub schedule: Option<ScheduleName>,
    pub status: JobStatus,
    pub attempts: u64,
    pub amount: Amount,
    /// Assumed part of the cost.
    pub assumed_usd: Option<f64>,
}

impl Store {
    /// Returns the usage of the quarters that start at or after `from` and before `until`. If `now` is in this period,
    /// the result contains the usage that running attempts have reported so far, as if they ended now. The same applies
    /// to [`Self::spent_on_items`] and [`Self::spent_on_jobs`].
    pub async fn spent(
        &self,
        from: Timestamp,
        until: Timestamp,
        now: Timestamp,
    ) -> Result<Vec<UsageSlot>, StoreError> {
        let counts_running = counts_running(from, until, now);
        self.read(move |tx| {
            Box::pin(async move {
                // Running attempts are read first, so that an attempt that ends between the two reads is not missed.
                let mut running = Vec::new();
                if counts_running {
                    for row in tx.all(USAGE_OF_RUNNING, args![]).await? {
                        running.extend(running_slots(&row, now)?);
                    }
                }
                let ended = tx.all(USAGE_BETWEEN, args![from, until]).await?;
                ended.iter().map(read).chain(running.into_iter().map(Ok)).collect()
            })
        })
        .await
    }

    /// Returns the total usage of at most `limit` work items whose last attempt ended in this period, the most
    /// expensive first.
    pub async fn spent_on_items(
        &self,
        from: Timestamp,
        until: Timestamp,
        now: Timestamp,
        limit: u32,
    ) -> Result<Vec<SpentOnItem>, StoreError> {
        let counts_running = counts_running(from, until, now);
        self.read(move |tx| {
            Box::pin(async move {
                let running =
                    if counts_running { tx.all(USAGE_OF_RUNNING, args![]).await? } else { Vec::new() };
                let ended = tx.all(USAGE_OF_ITEMS, args![from, until, limit]).await?;
                let mut items = ended.iter().map(read_item).collect::<Result<Vec<_>, _>>()?;
                for row in running {
                    let Some(item) = row.json_opt::<WorkItem>("work_item")? else { continue };
                    let id = item.id.to_string();
                    let known = items.iter().position(|known| known.item == id);
                    let mut total = match (known, tx.one(USAGE_OF_ITEM, args![id.as_str()]).await?) {
                        (Some(position), _) => items.swap_remove(position),
                        (None, Some(row)) => read_item(&row)?,
                        (None, None) => SpentOnItem::of(&item, now),
                    };
                    total.add(&row.json_opt("usage")?.unwrap_or_default(), now);
                    items.push(total);
                }
                items.sort_by(|one, other| {
                    other.sort_key().cmp(&one.sort_key()).then_with(|| one.item.cmp(&other.item))
                });
                items.truncate(limit as usize);
                Ok(items)
            })
        })
        .await
    }

    /// Returns the `limit` most expensive jobs with an attempt that ended in this period, and the cost of these
    /// attempts. With `agent`, returns only jobs of this agent.
    pub async fn spent_on_jobs(
        &self,
        agent: Option<&AgentName>,
        from: Timestamp,
        until: Timestamp,
        now: Timestamp,
        limit: u32,
    ) -> Result<Vec<SpentOnJob>, StoreError> {
        let counts_running = i64::from(counts_running(from, until, now));
        let args = args![from, until, limit, agent.map_or("", AgentName::as_str), counts_running];
        let rows = self.read(|tx| Box::pin(async move { tx.all(USAGE_OF_JOBS, args).await }));
        rows.await?.iter().map(read_job).collect()
    }

    /// Returns the total usage by agent, and by model where the model is known.
    pub async fn total_usage(&self) -> Result<Vec<(AgentName, Option<String>, ModelUsage)>, StoreError> {
        let rows = self.read(|tx| Box::pin(async move { tx.all(USAGE_IN_ALL, args![]).await })).await?;
        rows.iter().map(|row| Ok((row.parse("agent")?, model(row)?, usage(row)?))).collect()
    }
}

/// Checks whether the usage of running attempts counts for a period.
fn counts_running(from: Timestamp, until: Timestamp, now: Timestamp) -> bool {
    from <= now && now < until
}

impl SpentOnItem {
    fn of(item: &WorkItem, last_at: Timestamp) -> Self {
        Self {
            item: item.id.to_string(),
            title: cut(&item.title, 0, MAX_TITLE_BYTES),
            attempts: 0,
            usage: ModelUsage::default(),
            assumed_usd: None,
            last_at,
        }
    }

    /// Adds the usage of a running attempt.
    fn add(&mut self, usage: &JobUsage, now: Timestamp) {
        let mut attempt = ModelUsage::default();
        usage.per_model.values().for_each(|model| attempt.add(model));
        attempt.cost_usd = in_dollars(Amount::of(usage).microdollars);
        self.usage.add(&attempt);
        self.assumed_usd =
            usage.assumed_usd.map(|more| self.assumed_usd.unwrap_or_default() + more).or(self.assumed_usd);
        (self.attempts, self.last_at) = (self.attempts + 1, now);
    }

    /// Returns the sort key of `USAGE_OF_ITEMS`.
    fn sort_key(&self) -> (u64, u64) {
        (self.usage.cost_usd.map_or(0, budget::microdollars), self.usage.fresh_tokens())
    }
}

/// Part of the usage of an attempt that belongs to one row: the name of the model, the number of attempts, the usage,
/// and the assumed dollars in it. The first part has no model; it counts the attempt and has the costs without a known
/// model.
type Part<'u> = (&'u str, u32, ModelUsage, Option<f64>);

fn parts(usage: &JobUsage) -> impl Iterator<Item = Part<'_>> {
    let model_cost: f64 = usage.per_model.values().filter_map(|model| model.cost_usd).sum();
    let other_cost = usage.total_cost_usd.map(|total| (total - model_cost).max(0.0));
    let other_cost = usage.assumed_usd.map(|assumed| assumed + other_cost.unwrap_or_default()).or(other_cost);
    let other_usage = ModelUsage { cost_usd: other_cost, ..ModelUsage::default() };
    let model_parts = usage.per_model.iter().map(|(model, usage)| (model.as_str(), 0, *usage, None));
    std::iter::once(("", 1, other_usage, usage.assumed_usd)).chain(model_parts)
}

/// Returns the rows that a running attempt would add if it ended now.
fn running_slots(row: &Row, now: Timestamp) -> Result<Vec<UsageSlot>, StoreError> {
    let (agent, schedule): (AgentName, Option<ScheduleName>) =
        (row.parse("agent")?, row.parse_opt("schedule")?);
    let usage: JobUsage = row.json_opt("usage")?.unwrap_or_default();
    let of_part = |(model, attempts, usage, assumed): Part<'_>| UsageSlot {
        slot: slot(now),
        agent: agent.clone(),
        schedule: schedule.clone(),
        model: Some(model.to_owned()).filter(|model| !model.is_empty()),
        attempts: attempts.into(),
        usage: ModelUsage { cost_usd: in_dollars(usage.cost_usd.map_or(0, budget::microdollars)), ..usage },
        assumed_usd: assumed,
    };
    Ok(parts(&usage).map(of_part).collect())
}

/// Adds the usage of an attempt. Rows are locked in the order of their models, so that two transactions cannot wait for
/// each other.
pub(super) async fn add(
    tx: &mut Tx<'_>,
    job: &Job,
    usage: Option<&JobUsage>,
    now: Timestamp,
) -> Result<(), StoreError> {
    let no_usage = JobUsage::default();
    let usage = usage.unwrap_or(&no_usage);
    add_parts(tx, job, parts(usage), now).await?;
    match job.work_item() {
        Some(item) => add_to_item(tx, item, usage, now).await,
        None => Ok(()),
    }
}

/// Adds usage of an attempt that is counted already.
pub(super) async fn add_late(
    tx: &mut Tx<'_>,
    job: &Job,
    usage: &JobUsage,
    now: Timestamp,
) -> Result<(), StoreError> {
    let of_no_attempt = |(model, _, amounts, assumed)| (model, 0, amounts, assumed);
    add_parts(tx, job, parts(usage).map(of_no_attempt), now).await
}

async fn add_parts(
    tx: &mut Tx<'_>,
    job: &Job,
    parts: impl Iterator<Item = Part<'_>>,
    now: Timestamp,
) -> Result<(), StoreError> {
    let slot = slot(now);
    let schedule = job.schedule().map_or("", ScheduleName::as_str);
    for (model, attempts, amounts, assumed) in parts {
        let row = args![
            slot,
            job.agent().as_str(),
            schedule,
            model,
            i64::from(attempts),
            to_column(amounts.input_tokens),
            to_column(amounts.output_tokens),
            to_column(amounts.cache_creation_input_tokens),
            to_column(amounts.cache_read_input_tokens),
            microdollars(amounts.cost_usd),
            microdollars(assumed),
        ];
        tx.execute(ADD_USAGE, row).await?;
    }
    Ok(())
}

async fn add_to_item(
    tx: &mut Tx<'_>,
    item: &WorkItem,
    usage: &JobUsage,
    now: Timestamp,
) -> Result<(), StoreError> {
    let mut total = ModelUsage::default();
    usage.per_model.values().for_each(|model| total.add(model));
    let row = args![
        item.id.to_string(),
        cut(&item.title, 0, MAX_TITLE_BYTES),
        to_column(total.input_tokens),
        to_column(total.output_tokens),
        to_column(total.cache_creation_input_tokens),
        to_column(total.cache_read_input_tokens),
        to_column(Amount::of(usage).microdollars),
        now,
        microdollars(usage.assumed_usd),
    ];
    tx.execute(ADD_USAGE_OF_ITEM, row).await?;
    Ok(())
}

const MAX_TITLE_BYTES: usize = 200;

/// Returns the start of the quarter of an hour. In every time zone, days begin at such a time.
fn slot(now: Timestamp) -> Timestamp {
    const SLOT_SECONDS: i64 = 15 * 60;
    Timestamp::from_second(now.as_second().div_euclid(SLOT_SECONDS) * SLOT_SECONDS).unwrap_or(now)
}

/// Upper bound of an amount that is added to a row, so that the sums do not overflow. No attempt reaches this bound.
const MAX_STORED_AMOUNT: u64 = 4 * MAX_TOKENS;

fn to_column(amount: u64) -> i64 {
    amount.min(MAX_STORED_AMOUNT).cast_signed()
}

fn microdollars(cost_usd: Option<f64>) -> i64 {
    cost_usd.map_or(0, budget::microdollars).min(MAX_STORED_AMOUNT).cast_signed()
}

fn read(row: &Row) -> Result<UsageSlot, StoreError> {
    let schedule: String = row.get("schedule")?;
    Ok(UsageSlot {
        slot: row.time("slot")?,
        agent: row.parse("agent")?,
        schedule: (!schedule.is_empty()).then(|| row.parse("schedule")).transpose()?,
        model: model(row)?,
        attempts: row.count("attempts")?,
        usage: usage(row)?,
        assumed_usd: dollars(row, "assumed_microdollars")?,
    })
}

fn read_item(row: &Row) -> Result<SpentOnItem, StoreError> {
    Ok(SpentOnItem {
        item: row.get("item")?,
        title: row.get("title")?,
        attempts: row.count("attempts")?,
        usage: usage(row)?,
        assumed_usd: dollars(row, "assumed_microdollars")?,
        last_at: row.time("last_at")?,
    })
}

fn read_job(row: &Row) -> Result<SpentOnJob, StoreError> {
    Ok(SpentOnJob {
        job: row.parse("id")?,
        agent: row.parse("agent")?,
        schedule: row.parse_opt("schedule")?,
        status: row.parse("status")?,
        attempts: row.count("attempts")?,
        amount: Amount { microdollars: row.count("microdollars")?, tokens: row.count("tokens")? },
        assumed_usd: dollars(row, "assumed_microdollars")?,
    })
}

fn model(row: &Row) -> Result<Option<String>, StoreError> {
    let model: String = row.get("model")?;
    Ok(Some(model).filter(|model| !model.is_empty()))
}

/// Reads an amount of microdollars and returns dollars; `None` if it is 0.
fn dollars(row: &Row, column: &'static str) -> Result<Option<f64>, StoreError> {
    Ok(in_dollars(row.count(column)?))
}

fn in_dollars(microdollars: u64) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "exact up to nine billion dollars")]
    let dollars = (microdollars > 0).then_some(microdollars as f64 / 1e6);
    dollars
}

fn usage(row: &Row) -> Result<ModelUsage, StoreError> {
    let cost_usd = dollars(row, "cost_microdollars")?;
    Ok(ModelUsage {
        input_tokens: row.count("input_tokens")?,
        output_tokens: row.count("output_tokens")?,
        cache_creation_input_tokens: row.count("cache_creation_tokens")?,
        cache_read_input_tokens: row.count("cache_read_tokens")?,
        cost_usd,
    })
}

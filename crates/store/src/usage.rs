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
    USAGE_OF_ITEMS = same "select * from usage_of_items where last_at >= $1 and last_at < $2 \
        order by cost_microdollars desc, input_tokens + output_tokens desc, item limit $3";
    USAGE_OF_JOBS = same "select jobs.id, jobs.agent, jobs.schedule, jobs.status, count(*) as attempts, \
        cast(sum(coalesce(attempts.microdollars, 0) + attempts.assumed_microdollars) as bigint) as microdollars, \
        cast(sum(attempts.assumed_microdollars) as bigint) as assumed_microdollars, \
        cast(sum(coalesce(attempts.tokens, 0)) as bigint) as tokens from attempts join jobs on jobs.id = attempts.job_id \
        where attempts.ended_at >= $1 and attempts.ended_at < $2 and attempts.usage is not null \
        and ($4 = '' or jobs.agent = $4) group by jobs.id, jobs.agent, jobs.schedule, jobs.status order by microdollars desc, tokens desc, jobs.id limit $3";
    USAGE_BETWEEN = same "select * from usage where slot >= $1 and slot < $2 order by slot, agent, schedule, model";
}

/// Usage of the attempts of one agent, schedule and model that ended in one quarter of an hour.
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
    /// End of the last attempt.
    pub last_at: Timestamp,
}

/// Usage of the attempts of one job that ended in a period.
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
    /// Returns the usage of the quarters that start at or after `from` and before `until`.
    pub async fn spent(&self, from: Timestamp, until: Timestamp) -> Result<Vec<UsageSlot>, StoreError> {
        let times = args![from, until];
        self.read(|tx| {
            Box::pin(async move { tx.all(USAGE_BETWEEN, times).await?.iter().map(read).collect() })
        })
        .await
    }

    /// Returns the total usage of at most `limit` work items whose last attempt ended in this period, the most
    /// expensive first.
    pub async fn spent_on_items(
        &self,
        from: Timestamp,
        until: Timestamp,
        limit: u32,
    ) -> Result<Vec<SpentOnItem>, StoreError> {
        let args = args![from, until, limit];
        let rows = self.read(|tx| Box::pin(async move { tx.all(USAGE_OF_ITEMS, args).await }));
        rows.await?.iter().map(read_item).collect()
    }

    /// Returns the `limit` most expensive jobs with an attempt that ended in this period, and the cost of these
    /// attempts. With `agent`, returns only jobs of this agent.
    pub async fn spent_on_jobs(
        &self,
        agent: Option<&AgentName>,
        from: Timestamp,
        until: Timestamp,
        limit: u32,
    ) -> Result<Vec<SpentOnJob>, StoreError> {
        let args = args![from, until, limit, agent.map_or("", AgentName::as_str)];
        let rows = self.read(|tx| Box::pin(async move { tx.all(USAGE_OF_JOBS, args).await }));
        rows.await?.iter().map(read_job).collect()
    }

    /// Returns the total usage by agent, and by model where the model is known.
    pub async fn total_usage(&self) -> Result<Vec<(AgentName, Option<String>, ModelUsage)>, StoreError> {
        let rows = self.read(|tx| Box::pin(async move { tx.all(USAGE_IN_ALL, args![]).await })).await?;
        rows.iter().map(|row| Ok((row.parse("agent")?, model(row)?, usage(row)?))).collect()
    }
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
    let model_cost: f64 = usage.per_model.values().filter_map(|model| model.cost_usd).sum();
    let other_cost = usage.total_cost_usd.map(|total| (total - model_cost).max(0.0));
    let other_cost = usage.assumed_usd.map(|assumed| assumed + other_cost.unwrap_or_default()).or(other_cost);
    let other_usage = ModelUsage { cost_usd: other_cost, ..ModelUsage::default() };
    let model_rows = usage.per_model.iter().map(|(model, usage)| (model.as_str(), 0, usage));
    let slot = slot(now);
    let schedule = job.schedule().map_or("", ScheduleName::as_str);
    let attempt_row = ("", 1, &other_usage);
    for (model, attempts, amounts) in std::iter::once(attempt_row).chain(model_rows) {
        let assumed = usage.assumed_usd.filter(|_| model.is_empty());
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
    match job.work_item() {
        Some(item) => add_to_item(tx, item, usage, now).await,
        None => Ok(()),
    }
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
    let microdollars: u64 = row.count(column)?;
    #[expect(clippy::cast_precision_loss, reason = "exact up to nine billion dollars")]
    let dollars = (microdollars > 0).then_some(microdollars as f64 / 1e6);
    Ok(dollars)
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

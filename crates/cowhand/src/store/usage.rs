//! What was spent, by day, agent, schedule and model.

use cowhand_core::id::{AgentName, ScheduleName};
use cowhand_core::job::{Job, JobUsage, ModelUsage};
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use super::db::{Row, Tx, args};
use super::dialect::statements;
use super::{Store, StoreError};

statements! {
    ADD_USAGE = same "insert into usage (day, agent, schedule, model, attempts, input_tokens, output_tokens, \
        cache_creation_tokens, cache_read_tokens, cost_microdollars) values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) \
        on conflict (day, agent, schedule, model) do update set attempts = usage.attempts + excluded.attempts, \
        input_tokens = usage.input_tokens + excluded.input_tokens, \
        output_tokens = usage.output_tokens + excluded.output_tokens, \
        cache_creation_tokens = usage.cache_creation_tokens + excluded.cache_creation_tokens, \
        cache_read_tokens = usage.cache_read_tokens + excluded.cache_read_tokens, \
        cost_microdollars = usage.cost_microdollars + excluded.cost_microdollars";
    USAGE_IN_ALL = same "select agent, model, cast(sum(input_tokens) as bigint) as input_tokens, \
        cast(sum(output_tokens) as bigint) as output_tokens, \
        cast(sum(cache_creation_tokens) as bigint) as cache_creation_tokens, \
        cast(sum(cache_read_tokens) as bigint) as cache_read_tokens, \
        cast(sum(cost_microdollars) as bigint) as cost_microdollars from usage group by agent, model order by agent, model";
    USAGE_BETWEEN = same "select * from usage where day >= $1 and day <= $2 order by day, agent, schedule, model";
}

/// What the attempts of one day came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Spent {
    pub day: Date,
    pub agent: AgentName,
    /// None if no schedule fired them.
    pub schedule: Option<ScheduleName>,
    /// None for the attempts themselves, and for money of which no model is known.
    pub model: Option<String>,
    pub attempts: u64,
    pub usage: ModelUsage,
}

impl Store {
    /// Both days included.
    pub async fn spent(&self, first: Date, last: Date) -> Result<Vec<Spent>, StoreError> {
        let days = args![first.to_string(), last.to_string()];
        self.read(|tx| Box::pin(async move { tx.all(USAGE_BETWEEN, days).await?.iter().map(read).collect() }))
            .await
    }

    /// Since there is a store: by agent, and by model where one is known.
    pub async fn spent_in_all(&self) -> Result<Vec<(AgentName, Option<String>, ModelUsage)>, StoreError> {
        let rows = self.read(|tx| Box::pin(async move { tx.all(USAGE_IN_ALL, args![]).await })).await?;
        rows.iter().map(|row| Ok((row.parse("agent")?, model(row)?, usage(row)?))).collect()
    }
}

/// Rows are taken in the order of their models, so that two who settle cannot wait for each other.
pub(super) async fn add(
    tx: &mut Tx<'_>,
    job: &Job,
    usage: Option<&JobUsage>,
    now: Timestamp,
) -> Result<(), StoreError> {
    let nothing = JobUsage::default();
    let usage = usage.unwrap_or(&nothing);
    let of_models: f64 = usage.per_model.values().filter_map(|model| model.cost_usd).sum();
    let rest = usage.total_cost_usd.map(|total| (total - of_models).max(0.0));
    let whole = ModelUsage { cost_usd: rest, ..ModelUsage::default() };
    let of_models = usage.per_model.iter().map(|(model, usage)| (model.as_str(), 0, usage));
    let day = TimeZone::UTC.to_datetime(now).date().to_string();
    let schedule = job.schedule().map_or("", ScheduleName::as_str);
    for (model, attempts, usage) in std::iter::once(("", 1, &whole)).chain(of_models) {
        let row = args![
            day.as_str(),
            job.agent().as_str(),
            schedule,
            model,
            i64::from(attempts),
            stored(usage.input_tokens),
            stored(usage.output_tokens),
            stored(usage.cache_creation_input_tokens),
            stored(usage.cache_read_input_tokens),
            microdollars(usage.cost_usd),
        ];
        tx.execute(ADD_USAGE, row).await?;
    }
    Ok(())
}

/// What one attempt may say it used. An agent says these numbers, and the sum of a day has to stay a number.
const MOST: u32 = u32::MAX;

fn stored(tokens: u64) -> i64 {
    tokens.min(MOST.into()).cast_signed()
}

#[expect(clippy::cast_possible_truncation, reason = "clamped to what fits")]
fn microdollars(cost_usd: Option<f64>) -> i64 {
    (cost_usd.unwrap_or_default() * 1e6).round().clamp(0.0, MOST.into()) as i64
}

fn read(row: &Row) -> Result<Spent, StoreError> {
    let schedule: String = row.get("schedule")?;
    Ok(Spent {
        day: row.parse("day")?,
        agent: row.parse("agent")?,
        schedule: (!schedule.is_empty()).then(|| row.parse("schedule")).transpose()?,
        model: model(row)?,
        attempts: row.count("attempts")?,
        usage: usage(row)?,
    })
}

fn model(row: &Row) -> Result<Option<String>, StoreError> {
    let model: String = row.get("model")?;
    Ok(Some(model).filter(|model| !model.is_empty()))
}

fn usage(row: &Row) -> Result<ModelUsage, StoreError> {
    let microdollars: u64 = row.count("cost_microdollars")?;
    #[expect(clippy::cast_precision_loss, reason = "exact up to nine billion dollars")]
    let cost_usd = (microdollars > 0).then_some(microdollars as f64 / 1e6);
    Ok(ModelUsage {
        input_tokens: row.count("input_tokens")?,
        output_tokens: row.count("output_tokens")?,
        cache_creation_input_tokens: row.count("cache_creation_tokens")?,
        cache_read_input_tokens: row.count("cache_read_tokens")?,
        cost_usd,
    })
}

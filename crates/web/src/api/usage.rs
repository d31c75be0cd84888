//! Usage: spending of the fleet by day, agent, model, schedule, work item and job, and the state of its budgets.

mod budgets;
mod sums;

use axum::Json;
use axum::extract::State;
use cowhand_core::id::{AgentName, JobId, ScheduleName};
use cowhand_core::job::{JobStatus, ModelUsage};
use jiff::civil::Date;
use jiff::{Timestamp, ToSpan};
use schemars::JsonSchema;
use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Serialize, Serializer};

use super::extract::Params;
use super::{Api, ApiProblem};
pub use budgets::BudgetView;
pub use budgets::views as budget_views;
use cowhand_store::{SpentOnItem, SpentOnJob, UsageSlot};

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct UsageQuery {
    /// First day, in the fleet's time zone; unset means 29 days before the last day.
    since: Option<Date>,
    /// Last day, in the fleet's time zone; unset means today.
    until: Option<Date>,
    agent: Option<AgentName>,
}

/// Spending in a range of days, in the fleet's time zone. An attempt counts for the day on which it ended. A running
/// attempt counts for today, with the usage that it has reported so far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UsageView {
    pub since: Date,
    pub until: Date,
    pub time_zone: String,
    pub total: Total,
    /// Every day of the range, including those without spending.
    pub days: Vec<DayUsage>,
    /// Agents, the most expensive first. The lists of models, schedules, work items and jobs have the same order.
    pub agents: Vec<AgentUsage>,
    pub models: Vec<UsageOfModel>,
    pub schedules: Vec<ScheduleUsage>,
    /// Work items whose last attempt ended in the range, or has reported usage and still runs; at most 100. Each has
    /// its total usage, which includes earlier attempts. Empty if the request names an agent.
    pub work_items: Vec<ItemUsage>,
    /// Jobs with an attempt that ended in the range, or that has reported usage and still runs, without pruned jobs; at
    /// most 100.
    pub jobs: Vec<UsageOfJob>,
    /// Current state of the budgets.
    pub budgets: Vec<BudgetView>,
}

#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Total {
    pub attempts: u64,
    #[serde(flatten, serialize_with = "with_unknown_cost")]
    #[schemars(with = "ModelUsage")]
    pub usage: ModelUsage,
    /// Part of `cost_usd` that is assumed, because it was not reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assumed_usd: Option<f64>,
}

/// Writes the usage with `cost_usd: null` if the cost is not known. A job leaves the field out instead.
fn with_unknown_cost<S: Serializer>(usage: &ModelUsage, serializer: S) -> Result<S::Ok, S::Error> {
    let ModelUsage {
        input_tokens,
        output_tokens,
        cache_creation_input_tokens,
        cache_read_input_tokens,
        cost_usd,
    } = usage;
    let mut fields = serializer.serialize_struct("ModelUsage", 5)?;
    fields.serialize_field("input_tokens", input_tokens)?;
    fields.serialize_field("output_tokens", output_tokens)?;
    fields.serialize_field("cache_creation_input_tokens", cache_creation_input_tokens)?;
    fields.serialize_field("cache_read_input_tokens", cache_read_input_tokens)?;
    fields.serialize_field("cost_usd", cost_usd)?;
    fields.end()
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DayUsage {
    pub day: Date,
    #[serde(flatten)]
    pub total: Total,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentUsage {
    pub agent: AgentName,
    #[serde(flatten)]
    pub total: Total,
}

/// Usage of a model. Attempts are not counted by model, because an attempt may use several.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UsageOfModel {
    /// Model; none for spending without a known model.
    pub model: Option<String>,
    #[serde(flatten, serialize_with = "with_unknown_cost")]
    #[schemars(with = "ModelUsage")]
    pub usage: ModelUsage,
    /// Part of `cost_usd` that is assumed, because it was not reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assumed_usd: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScheduleUsage {
    pub agent: AgentName,
    /// Schedule; none for jobs without a schedule.
    pub schedule: Option<ScheduleName>,
    #[serde(flatten)]
    pub total: Total,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ItemUsage {
    pub work_item: String,
    pub title: String,
    /// End of its last attempt; the present time while an attempt runs.
    pub last_at: Timestamp,
    #[serde(flatten)]
    pub total: Total,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UsageOfJob {
    pub job: JobId,
    pub agent: AgentName,
    pub schedule: Option<ScheduleName>,
    pub status: JobStatus,
    /// Number of attempts that ended in the range, and of the running attempt.
    pub attempts: u64,
    /// Tokens of all kinds.
    pub tokens: u64,
    /// Cost; none if it is zero or not known.
    pub cost_usd: Option<f64>,
    /// Part of `cost_usd` that is assumed, because it was not reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assumed_usd: Option<f64>,
}

/// Maximum number of days, as many as a chart can show.
const MAX_DAYS: i32 = 366;

/// Maximum number of work items and of jobs.
const MAX_USAGE_ROWS: u32 = 100;

pub(super) async fn usage(
    State(api): State<Api>,
    Params(query): Params<UsageQuery>,
) -> Result<Json<UsageView>, ApiProblem> {
    let (roster, now) = (api.roster(), api.now());
    let zone = roster.zone();
    let until = query.until.unwrap_or_else(|| zone.to_datetime(now).date());
    let since = query.since.unwrap_or_else(|| until.saturating_sub(29.days()));
    let days = (until - since).get_days();
    if days < 0 {
        return Err(ApiProblem::bad_request(format!(
            "{since} is after {until}; `since` has to be the earlier day"
        )));
    }
    if days >= MAX_DAYS {
        return Err(ApiProblem::bad_request(format!(
            "from {since} to {until} there are more than {MAX_DAYS} days"
        )));
    }
    let start_of = |day: Date| day.to_zoned(zone.clone()).map(|start| start.timestamp());
    let (from, end) = (start_of(since), until.tomorrow().and_then(start_of));
    let (Ok(from), Ok(end)) = (from, end) else {
        return Err(ApiProblem::bad_request(format!(
            "from {since} to {until} are not valid days in the time zone {}",
            roster.zone
        )));
    };
    let is_requested = |agent: &AgentName| query.agent.as_ref().is_none_or(|only| only == agent);
    let rows: Vec<UsageSlot> = api.store.spent(from, end, now).await?;
    let rows: Vec<UsageSlot> = rows.into_iter().filter(|row| is_requested(&row.agent)).collect();
    if let Some(agent) = query.agent.as_ref().filter(|_| rows.is_empty()) {
        api.require_known(Some(agent), None).await?;
    }
    let mut view = UsageView::of(since, until, zone, rows.into_iter());
    view.time_zone = roster.zone.to_string();
    if query.agent.is_none() {
        let items = api.store.spent_on_items(from, end, now, MAX_USAGE_ROWS).await?;
        view.work_items = items.into_iter().map(ItemUsage::from).collect();
    }
    let jobs = api.store.spent_on_jobs(query.agent.as_ref(), from, end, now, MAX_USAGE_ROWS).await?;
    view.jobs = jobs.into_iter().map(UsageOfJob::from).collect();
    let ledger = api.store.spending(&roster, now).await?;
    view.budgets = budgets::views(&roster, &ledger, now, query.agent.as_ref());
    Ok(Json(view))
}

impl From<SpentOnItem> for ItemUsage {
    fn from(row: SpentOnItem) -> Self {
        let SpentOnItem { item, title, attempts, usage, assumed_usd, last_at } = row;
        Self { work_item: item, title, last_at, total: Total { attempts, usage, assumed_usd } }
    }
}

impl From<SpentOnJob> for UsageOfJob {
    fn from(row: SpentOnJob) -> Self {
        let SpentOnJob { job, agent, schedule, status, attempts, amount, assumed_usd } = row;
        let cost_usd = (amount.microdollars > 0).then(|| budgets::dollars(amount.microdollars));
        let tokens = amount.tokens;
        Self { job, agent, schedule, status, attempts, tokens, cost_usd, assumed_usd }
    }
}

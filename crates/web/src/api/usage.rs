//! Usage: what the fleet has spent, by day, agent, model, schedule, work item and job, and what its budgets leave.

mod budgets;
mod sums;

use axum::Json;
use axum::extract::State;
use cowhand_core::id::{AgentName, JobId, ScheduleName};
use cowhand_core::job::{JobStatus, ModelUsage};
use jiff::civil::Date;
use jiff::{Timestamp, ToSpan};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::given::Params;
use super::{Api, Problem};
pub use budgets::BudgetView;
pub use budgets::views as budget_views;
use cowhand_store::{SpentOnItem, SpentOnJob, UsageSlot};

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Asked {
    /// The first day, in the fleet's time zone; unset means 29 days before the last.
    since: Option<Date>,
    /// The last day, in the fleet's time zone; unset means today.
    until: Option<Date>,
    agent: Option<AgentName>,
}

/// Days are those of the fleet's time zone. An attempt belongs to the day on which it ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UsageView {
    pub since: Date,
    pub until: Date,
    pub time_zone: String,
    pub total: Total,
    /// Every day of the range, also those without any.
    pub days: Vec<DayUsage>,
    /// The most expensive first, as in all that follow.
    pub agents: Vec<AgentUsage>,
    pub models: Vec<UsageOfModel>,
    pub schedules: Vec<ScheduleUsage>,
    /// Those that somebody worked on since then, and what each has cost in all; at most 100.
    pub work_items: Vec<ItemUsage>,
    /// At most 100, of those that are not pruned.
    pub jobs: Vec<UsageOfJob>,
    /// What there are budgets for, now.
    pub budgets: Vec<BudgetView>,
}

#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Total {
    pub attempts: u64,
    #[serde(flatten)]
    pub usage: ModelUsage,
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

/// Attempts are not counted by model: one may use several.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UsageOfModel {
    /// None for money of which no model is known.
    pub model: Option<String>,
    #[serde(flatten)]
    pub usage: ModelUsage,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScheduleUsage {
    pub agent: AgentName,
    /// None for jobs that no schedule fired.
    pub schedule: Option<ScheduleName>,
    #[serde(flatten)]
    pub total: Total,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ItemUsage {
    pub work_item: String,
    pub title: String,
    /// When an attempt for it last ended.
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
    /// Of those that ended in this time.
    pub attempts: u64,
    /// Of all kinds together.
    pub tokens: u64,
    /// None if nobody told a price.
    pub cost_usd: Option<f64>,
}

/// More days are no chart any more.
const MOST_DAYS: i32 = 366;

/// Of work items and jobs.
const MOST_ROWS: u32 = 100;

pub(super) async fn usage(
    State(api): State<Api>,
    Params(asked): Params<Asked>,
) -> Result<Json<UsageView>, Problem> {
    let (roster, now) = (api.roster(), api.now());
    let zone = roster.zone();
    let until = asked.until.unwrap_or_else(|| zone.to_datetime(now).date());
    let since = asked.since.unwrap_or_else(|| until.saturating_sub(29.days()));
    let days = (until - since).get_days();
    if days < 0 {
        return Err(Problem::bad_request(format!(
            "{since} is after {until}; `since` has to be the earlier day"
        )));
    }
    if days >= MOST_DAYS {
        return Err(Problem::bad_request(format!(
            "from {since} to {until} there are more than {MOST_DAYS} days"
        )));
    }
    let begin = |day: Date| day.to_zoned(zone.clone()).map(|begin| begin.timestamp());
    let (from, end) = (begin(since), until.tomorrow().and_then(begin));
    let (Ok(from), Ok(end)) = (from, end) else {
        return Err(Problem::bad_request(format!("from {since} to {until} are no days of {}", roster.zone)));
    };
    let wanted = |agent: &AgentName| asked.agent.as_ref().is_none_or(|only| only == agent);
    let rows: Vec<UsageSlot> = api.store.spent(from, end).await?;
    let rows: Vec<UsageSlot> = rows.into_iter().filter(|row| wanted(&row.agent)).collect();
    if let Some(agent) = asked.agent.as_ref().filter(|_| rows.is_empty()) {
        api.know(Some(agent), None).await?;
    }
    let mut view = UsageView::of(since, until, zone, rows.into_iter());
    view.time_zone = roster.zone.to_string();
    if asked.agent.is_none() {
        let items = api.store.spent_on_items(from, MOST_ROWS).await?;
        view.work_items = items.into_iter().map(ItemUsage::from).collect();
    }
    let jobs = api.store.spent_on_jobs(from, end, MOST_ROWS).await?;
    view.jobs = jobs.into_iter().filter(|job| wanted(&job.agent)).map(UsageOfJob::from).collect();
    let ledger = api.store.spending(&roster, now).await?;
    view.budgets = budgets::views(&roster, &ledger, now, asked.agent.as_ref());
    Ok(Json(view))
}

impl From<SpentOnItem> for ItemUsage {
    fn from(row: SpentOnItem) -> Self {
        let SpentOnItem { item, title, attempts, usage, last_at } = row;
        Self { work_item: item, title, last_at, total: Total { attempts, usage } }
    }
}

impl From<SpentOnJob> for UsageOfJob {
    fn from(row: SpentOnJob) -> Self {
        let SpentOnJob { job, agent, schedule, status, attempts, amount } = row;
        let cost_usd = (amount.microdollars > 0).then(|| budgets::dollars(amount.microdollars));
        let tokens = amount.tokens;
        Self { job, agent, schedule, status, attempts, tokens, cost_usd }
    }
}

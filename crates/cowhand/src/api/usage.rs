//! Usage: what the fleet has spent, by day, agent and model.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use cowhand_core::id::AgentName;
use cowhand_core::job::ModelUsage;
use jiff::ToSpan;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::given::Params;
use super::{Api, Problem};
use crate::store::Spent;

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Asked {
    /// The first day, in UTC; unset means 29 days before the last.
    since: Option<Date>,
    /// The last day, in UTC; unset means today.
    until: Option<Date>,
    agent: Option<AgentName>,
}

/// Days are UTC's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UsageView {
    pub since: Date,
    pub until: Date,
    pub total: Total,
    /// Every day of the range, also those without any.
    pub days: Vec<DayUsage>,
    /// The most expensive first.
    pub agents: Vec<AgentUsage>,
    pub models: Vec<UsageOfModel>,
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

/// More days are no chart any more.
const MOST_DAYS: i32 = 366;

pub(super) async fn usage(
    State(api): State<Api>,
    Params(asked): Params<Asked>,
) -> Result<Json<UsageView>, Problem> {
    let until = asked.until.unwrap_or_else(|| TimeZone::UTC.to_datetime(api.now()).date());
    let since = asked.since.unwrap_or_else(|| until.saturating_sub(29.days()));
    let days = (until - since).get_days();
    if !(0..MOST_DAYS).contains(&days) {
        return Err(Problem::bad_request(format!("from {since} to {until} are not 1 to {MOST_DAYS} days")));
    }
    let rows = api.store.spent(since, until).await?;
    let wanted = |row: &Spent| asked.agent.as_ref().is_none_or(|agent| row.agent == *agent);
    Ok(Json(UsageView::of(since, until, rows.into_iter().filter(wanted))))
}

impl UsageView {
    fn of(since: Date, until: Date, rows: impl Iterator<Item = Spent>) -> Self {
        let mut total = Total::default();
        let days = since.series(1.day()).take_while(|day| *day <= until);
        let mut days: BTreeMap<Date, Total> = days.map(|day| (day, Total::default())).collect();
        let mut agents: BTreeMap<AgentName, Total> = BTreeMap::new();
        let mut models: BTreeMap<Option<String>, Total> = BTreeMap::new();
        for row in rows {
            total.add(&row);
            days.entry(row.day).or_default().add(&row);
            agents.entry(row.agent.clone()).or_default().add(&row);
            models.entry(row.model.clone()).or_default().add(&row);
        }
        let mut agents: Vec<_> =
            agents.into_iter().map(|(agent, total)| AgentUsage { agent, total }).collect();
        agents.sort_by(|one, other| other.total.weight().total_cmp(&one.total.weight()));
        let mut models: Vec<_> =
            models.into_iter().map(|(model, total)| UsageOfModel { model, usage: total.usage }).collect();
        models.retain(|model| model.model.is_some() || model.usage.cost_usd.is_some());
        models.sort_by(|one, other| weight(&other.usage).total_cmp(&weight(&one.usage)));
        let days = days.into_iter().map(|(day, total)| DayUsage { day, total }).collect();
        Self { since, until, total, days, agents, models }
    }
}

impl Total {
    fn add(&mut self, row: &Spent) {
        self.attempts += row.attempts;
        self.usage.add(&row.usage);
    }

    fn weight(&self) -> f64 {
        weight(&self.usage)
    }
}

/// Money first; among those that cost nothing, or nobody knows what, the tokens decide.
fn weight(usage: &ModelUsage) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "only for an order")]
    let tokens = (usage.input_tokens + usage.output_tokens) as f64;
    usage.cost_usd.unwrap_or_default() + tokens * 1e-12
}

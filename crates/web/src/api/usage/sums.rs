//! Sums of spending: in total, and by day, agent, model and schedule.

use std::collections::BTreeMap;

use cowhand_core::id::{AgentName, ScheduleName};
use cowhand_core::job::ModelUsage;
use jiff::ToSpan;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use super::{AgentUsage, DayUsage, ScheduleUsage, Total, UsageOfModel, UsageView};
use cowhand_store::UsageSlot;

impl UsageView {
    pub(super) fn of(
        since: Date,
        until: Date,
        zone: &TimeZone,
        rows: impl Iterator<Item = UsageSlot>,
    ) -> Self {
        let mut total = Total::default();
        let days = since.series(1.day()).take_while(|day| *day <= until);
        let mut days: BTreeMap<Date, Total> = days.map(|day| (day, Total::default())).collect();
        let mut agents: BTreeMap<AgentName, Total> = BTreeMap::new();
        let mut models: BTreeMap<Option<String>, Total> = BTreeMap::new();
        let mut schedules: BTreeMap<(AgentName, Option<ScheduleName>), Total> = BTreeMap::new();
        for row in rows {
            total.add(&row);
            days.entry(zone.to_datetime(row.slot).date()).or_default().add(&row);
            agents.entry(row.agent.clone()).or_default().add(&row);
            models.entry(row.model.clone()).or_default().add(&row);
            schedules.entry((row.agent.clone(), row.schedule.clone())).or_default().add(&row);
        }
        let mut agents: Vec<_> =
            agents.into_iter().map(|(agent, total)| AgentUsage { agent, total }).collect();
        agents.sort_by(|one, other| other.total.sort_key().total_cmp(&one.total.sort_key()));
        let of_model = |(model, Total { usage, assumed_usd, .. })| UsageOfModel { model, usage, assumed_usd };
        let mut models: Vec<_> = models.into_iter().map(of_model).collect();
        models.retain(|model| model.model.is_some() || model.usage.cost_usd.is_some());
        models.sort_by(|one, other| sort_key(&other.usage).total_cmp(&sort_key(&one.usage)));
        let schedules = schedules.into_iter();
        let mut schedules: Vec<_> =
            schedules.map(|((agent, schedule), total)| ScheduleUsage { agent, schedule, total }).collect();
        schedules.sort_by(|one, other| other.total.sort_key().total_cmp(&one.total.sort_key()));
        let days = days.into_iter().map(|(day, total)| DayUsage { day, total }).collect();
        let (time_zone, work_items, jobs, budgets) = (String::new(), Vec::new(), Vec::new(), Vec::new());
        Self { since, until, time_zone, total, days, agents, models, schedules, work_items, jobs, budgets }
    }
}

impl Total {
    fn add(&mut self, row: &UsageSlot) {
        self.attempts = self.attempts.saturating_add(row.attempts);
        self.usage.add(&row.usage);
        if let Some(assumed) = row.assumed_usd {
            *self.assumed_usd.get_or_insert_default() += assumed;
        }
    }

    fn sort_key(&self) -> f64 {
        sort_key(&self.usage)
    }
}

/// Returns the sort key: the cost. Tokens decide between equal or unknown costs.
fn sort_key(usage: &ModelUsage) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "only for an order")]
    let tokens = usage.fresh_tokens() as f64;
    usage.cost_usd.unwrap_or_default() + tokens * 1e-12
}

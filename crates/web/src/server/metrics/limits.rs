//! Metrics of budgets, providers and open asks, which can delay jobs.

use std::collections::BTreeMap;

use cowhand_core::plan::LiveState;
use cowhand_core::roster::Agent;
use jiff::Timestamp;

use super::Metrics;
use super::text::{MetricKind, MetricsText};
use crate::api::{ApiProblem, BudgetView, ProviderUsage, WindowView, budget_views};

/// Largest number of open asks that are counted.
const MAX_ASKS_COUNTED: u32 = 10_000;

impl Metrics {
    /// Writes the budgets, by agent. Budgets of the fleet have an empty agent label.
    pub(super) async fn write_budgets(&self, page: &mut MetricsText) -> Result<(), ApiProblem> {
        let (roster, now) = (self.fleet.roster(), self.fleet.clock().now());
        let ledger = self.fleet.store().spending(&roster, now).await?;
        let views = budget_views(&roster, &ledger, now, None);
        let labels = |view: &BudgetView| {
            [
                ("agent", view.agent.as_ref().map(ToString::to_string).unwrap_or_default()),
                ("window", view.window.as_str().to_owned()),
                ("unit", view.unit.as_str().to_owned()),
            ]
        };
        let mut write = |name: &str, help: &str, value: fn(&BudgetView) -> f64| {
            page.family(MetricKind::Gauge, name, help, views.iter().map(|view| (labels(view), value(view))));
        };
        write("cowhand_budget_limit", "Amount that may be spent in this day or month.", |view| view.limit);
        write(
            "cowhand_budget_spent",
            "Amount that was spent of the budget, including running jobs.",
            |view| view.spent,
        );
        write(
            "cowhand_budget_reserved",
            "Amount that is reserved for running jobs beyond what they have spent.",
            |view| view.reserved,
        );
        Ok(())
    }

    pub(super) async fn write_providers(&self, page: &mut MetricsText) -> Result<(), ApiProblem> {
        let (roster, now) = (self.fleet.roster(), self.fleet.clock().now());
        let states = self.fleet.store().providers().await?;
        let jobs = self.fleet.store().snapshot().await?.jobs;
        let programs = roster.agents.iter().flat_map(Agent::with_fallbacks);
        let slots = programs.filter_map(|(_, program)| roster.slot(&program));
        let slots: BTreeMap<String, _> = slots.map(|slot| (slot.provider.clone(), slot)).collect();
        let labels = |provider: &str| [("provider", provider.to_owned())];
        let running = jobs.iter().filter(|job| matches!(job.state, LiveState::Running { .. }));
        let running = slots.keys().map(|provider| {
            let count = running.clone().filter(|job| job.provider.as_ref() == Some(provider)).count();
            (labels(provider), count)
        });
        page.family(MetricKind::Gauge, "cowhand_provider_jobs", "Jobs that run at a provider.", running);
        let slot_counts =
            slots.iter().filter_map(|(provider, slot)| Some((labels(provider), slot.limits.max_concurrent?)));
        let help = "Maximum number of jobs that may run at a provider at a time, if it is limited.";
        page.family(MetricKind::Gauge, "cowhand_provider_places", help, slot_counts);
        let parked = slots.keys().map(|provider| {
            let parked = states.get(provider).and_then(|state| state.parked.as_ref());
            let until = parked.map(|parked| parked.until).filter(|until| *until > now);
            (labels(provider), until.map_or(0, Timestamp::as_second))
        });
        let help = "Time at which a provider that is used up accepts jobs again; 0 if it accepts jobs now.";
        page.family(MetricKind::Gauge, "cowhand_provider_parked_until_timestamp_seconds", help, parked);
        let usages = slots.iter().map(|(provider, slot)| ProviderUsage::of(slot, states.get(provider), now));
        write_usage_windows(page, &usages.collect::<Vec<_>>());
        Ok(())
    }

    pub(super) async fn write_asks(&self, page: &mut MetricsText) -> Result<(), ApiProblem> {
        let open = self.fleet.store().open_asks(MAX_ASKS_COUNTED).await?;
        let roster = self.fleet.roster();
        let waiting = roster.agents.iter().map(|agent| {
            let of_agent = open.iter().filter(|ask| ask.agent == agent.name).count();
            ([("agent", agent.name.to_string())], of_agent)
        });
        page.family(MetricKind::Gauge, "cowhand_asks", "Asks that wait for the answer of a person.", waiting);
        Ok(())
    }
}

/// Writes the usage windows of the providers and their reserves.
fn write_usage_windows(page: &mut MetricsText, usages: &[ProviderUsage]) {
    let windows = || usages.iter().flat_map(|usage| usage.windows.iter().map(move |window| (usage, window)));
    let mut write = |name: &str, help: &str, value: fn(&WindowView) -> f64| {
        let samples = windows().map(|(usage, window)| {
            let labels = [("provider", usage.provider.clone()), ("window", window.window.to_string())];
            (labels, value(window))
        });
        page.family(MetricKind::Gauge, name, help, samples);
    };
    write("cowhand_provider_window_used_ratio", "Used part of a usage window of a provider.", |window| {
        window.used_percent / 100.0
    });
    write("cowhand_provider_window_resets_at_timestamp_seconds", "End of a usage window.", |window| {
        seconds(window.resets_at)
    });
    let help = "Time of the newest report about a usage window.";
    write("cowhand_provider_window_reported_at_timestamp_seconds", help, |window| {
        seconds(window.reported_at)
    });
    let labels = |usage: &ProviderUsage| [("provider", usage.provider.clone())];
    let reserves = usages.iter().filter_map(|usage| Some((labels(usage), usage.reserve?.number() / 100.0)));
    let help = "Part of the usage windows that automatic jobs do not use now.";
    page.family(MetricKind::Gauge, "cowhand_provider_reserve_ratio", help, reserves);
    let until = usages.iter().filter(|usage| usage.reserve.is_some()).map(|usage| {
        let until = usage.reached.as_ref().map_or(0, |reached| reached.until.as_second());
        (labels(usage), until)
    });
    let help = "Time at which automatic jobs start again at a provider whose reserve is reached; 0 if they start now.";
    page.family(MetricKind::Gauge, "cowhand_provider_reserved_until_timestamp_seconds", help, until);
}

#[expect(clippy::cast_precision_loss, reason = "exact for every time")]
fn seconds(at: Timestamp) -> f64 {
    at.as_second() as f64
}

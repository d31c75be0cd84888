//! The state of the budgets of a day or a month, for the usage endpoint of the API and for the metrics.

use cowhand_core::budget::{
    Budget, BudgetOwner, BudgetWindow, Period, SpendLimits, Spending, SpendingLedger, Unit,
};
use cowhand_core::id::AgentName;
use cowhand_core::roster::Roster;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Budget of a day or a month. Amounts are dollars or tokens, according to `unit`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BudgetView {
    pub scope: BudgetOwner,
    /// Agent; none for a budget of the fleet.
    pub agent: Option<AgentName>,
    pub window: BudgetWindow,
    pub unit: Unit,
    pub limit: f64,
    /// Amount spent by ended attempts, and by running ones as far as they report it.
    pub spent: f64,
    /// Amount reserved for running attempts beyond what they have reported.
    pub reserved: f64,
    /// End of the current day or month, when the budget is reset.
    pub until: Timestamp,
}

/// Returns the budgets: those of the fleet first, then those of the agents in the order of the files. With `only`,
/// returns only the budgets of this agent.
pub fn views(
    roster: &Roster,
    ledger: &SpendingLedger,
    now: Timestamp,
    only: Option<&AgentName>,
) -> Vec<BudgetView> {
    let Some(limits) = roster.agents.iter().find_map(|agent| SpendLimits::of(roster, agent, now)) else {
        return Vec::new();
    };
    let fleet = only.is_none().then_some((BudgetOwner::Fleet, None, roster.budget, ledger.fleet));
    let agents = roster.agents.iter().filter(|agent| only.is_none_or(|only| *only == agent.name));
    let agents = agents.filter(|agent| !agent.budget.is_unlimited()).map(|agent| {
        let (spending, _) = ledger.agents.get(&agent.name).copied().unwrap_or_default();
        (BudgetOwner::Agent, Some(agent.name.clone()), agent.budget, spending)
    });
    let owners = fleet.into_iter().chain(agents);
    owners
        .flat_map(|(scope, agent, budget, spending)| {
            views_of(scope, agent.as_ref(), &budget, &spending, [limits.day, limits.month])
        })
        .collect()
}

/// Returns the views of one budget, one for each window and unit that it limits.
fn views_of(
    scope: BudgetOwner,
    agent: Option<&AgentName>,
    budget: &Budget,
    spending: &Spending,
    [day, month]: [Period; 2],
) -> Vec<BudgetView> {
    let mut views = Vec::new();
    for (window, settled, until) in
        [(BudgetWindow::Day, spending.day, day.end), (BudgetWindow::Month, spending.month, month.end)]
    {
        for unit in [Unit::Usd, Unit::Tokens] {
            let Some(limit) = budget.limit(window, unit) else { continue };
            let [settled, reported, committed] =
                [settled, spending.reported, spending.committed].map(|amount| match unit {
                    Unit::Usd => amount.microdollars,
                    Unit::Tokens => amount.tokens,
                });
            let to_number = |value: u64| match unit {
                Unit::Usd => dollars(value),
                #[expect(clippy::cast_precision_loss, reason = "token counts this large do not occur")]
                Unit::Tokens => value as f64,
            };
            let (spent, reserved) =
                (to_number(settled.saturating_add(reported)), to_number(committed.saturating_sub(reported)));
            let (agent, limit) = (agent.cloned(), to_number(limit));
            views.push(BudgetView { scope, agent, window, unit, limit, spent, reserved, until });
        }
    }
    views
}

pub(super) fn dollars(microdollars: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "exact up to nine billion dollars")]
    let dollars = microdollars as f64 / 1e6;
    dollars
}

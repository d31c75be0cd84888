//! Budgets with their spent and reserved amounts, on the pages of the fleet and of usage.

use cowhand_core::budget::{BudgetWindow, Unit};
use maud::{Markup, html};

use super::elements;
use cowhand_web::api::BudgetView;

fn amount(unit: Unit, amount: f64) -> String {
    match unit {
        Unit::Usd => elements::money(amount.max(0.0)),
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "tokens are whole")]
        Unit::Tokens => format!("{} tokens", elements::count(amount.max(0.0) as u64)),
    }
}

/// Returns `part` in percent of the limit of the budget, from 0 to 100. If the limit is 0, returns 100.
fn share(part: f64, budget: &BudgetView) -> f64 {
    if budget.limit > 0.0 { (part / budget.limit * 100.0).clamp(0.0, 100.0) } else { 100.0 }
}

pub(super) fn table(budgets: &[BudgetView]) -> Markup {
    html! {
        table {
            thead { tr { th { "Of" } th { "For a" } th.grow.wide { span.hidden { "Share" } }
                th.end { "Spent" } th.end.wide { "Reserved" } th.end { "Limit" } } }
            tbody {
                @for budget in budgets {
                    tr {
                        td { @match &budget.agent { Some(agent) => (elements::agent(agent)), None => "the fleet" } }
                        td { (budget.window) }
                        td.grow.wide { svg.share aria-hidden="true" width="100%" height="10" {
                            rect.ground width="100%" height="10" rx="2" {}
                            rect.value.full[is_tight(budget)] width={ (share(budget.spent, budget)) "%" } height="10" rx="2" {} } }
                        td.end { span.number { (amount(budget.unit, budget.spent)) } }
                        td.end.wide { span.number { (amount(budget.unit, budget.reserved)) } }
                        td.end { span.number { (amount(budget.unit, budget.limit)) } }
                    }
                }
            }
        }
    }
}

/// Renders ` of $5.00`, the fleet's budget of a day, as the continuation of today's spending. Renders nothing if the
/// fleet has no such budget in dollars.
pub(super) fn of_today(budgets: &[BudgetView]) -> Markup {
    let of_fleet = |budget: &&BudgetView| {
        budget.agent.is_none() && budget.window == BudgetWindow::Day && budget.unit == Unit::Usd
    };
    html! { @if let Some(budget) = budgets.iter().find(of_fleet) { " of " (elements::money(budget.limit)) } }
}

/// Returns the budgets of which at least 90 % is spent or reserved.
pub(super) fn tight(budgets: &[BudgetView]) -> Vec<BudgetView> {
    budgets.iter().filter(|budget| is_tight(budget)).cloned().collect()
}

fn is_tight(budget: &BudgetView) -> bool {
    budget.spent + budget.reserved >= budget.limit * 0.9
}

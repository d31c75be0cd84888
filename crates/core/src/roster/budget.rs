//! The budgets of a fleet's agents, and the budget that prevents an agent's attempts from starting.

use jiff::Timestamp;

use super::{Agent, Roster};
use crate::budget::{Amount, OverBudget, Period, SpendLimits, SpendingLedger};

impl SpendLimits {
    /// Returns the budgets that apply to an attempt of this agent now; none if nothing is limited.
    pub fn of(roster: &Roster, agent: &Agent, now: Timestamp) -> Option<Self> {
        let own = agent.budget;
        let fleet = roster.budget;
        let (day, month) = (Period::day(now, roster.zone()), Period::month(now, roster.zone()));
        (!own.is_unlimited() || !fleet.is_unlimited()).then_some(Self { own, fleet, day, month })
    }
}

impl Roster {
    /// Checks whether there is a daily or monthly budget.
    pub fn has_budgets(&self) -> bool {
        self.budget.has_windows() || self.agents.iter().any(|agent| agent.budget.has_windows())
    }

    /// Returns the budget that prevents attempts of the agent from starting now, if there is one.
    pub fn over_budget(&self, agent: &Agent, ledger: &SpendingLedger, now: Timestamp) -> Option<OverBudget> {
        let limits = SpendLimits::of(self, agent, now)?;
        let (own, highest_cost) = ledger.agents.get(&agent.name).copied().unwrap_or_default();
        limits.reserve(Amount::default(), &own, highest_cost, &ledger.fleet).err()
    }
}

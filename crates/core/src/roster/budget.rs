//! The budgets of a fleet's agents, and who of them may not start for want of money.

use jiff::Timestamp;

use super::{Agent, Roster};
use crate::budget::{Amount, Ledger, OverBudget, Period, SpendLimits};

impl SpendLimits {
    /// Returns the budgets that an attempt of this agent has to keep now; none if nothing is limited.
    pub fn of(roster: &Roster, agent: &Agent, now: Timestamp) -> Option<Self> {
        let own = agent.settings.budget.unwrap_or_default();
        let fleet = roster.budget;
        let (day, month) = (Period::day(now, roster.zone()), Period::month(now, roster.zone()));
        (!own.is_unlimited() || !fleet.is_unlimited()).then_some(Self { own, fleet, day, month })
    }
}

impl Roster {
    /// Whether anybody's spending in a day or month is limited.
    pub fn has_budgets(&self) -> bool {
        self.budget.has_windows()
            || self.agents.iter().any(|agent| agent.settings.budget.is_some_and(|own| own.has_windows()))
    }

    /// Why no attempt of the agent may start now, if money is the reason.
    pub fn over_budget(&self, agent: &Agent, ledger: &Ledger, now: Timestamp) -> Option<OverBudget> {
        let limits = SpendLimits::of(self, agent, now)?;
        let (own, dearest) = ledger.agents.get(&agent.name).copied().unwrap_or_default();
        limits.reserve(Amount::default(), &own, dearest, &ledger.fleet).err()
    }
}

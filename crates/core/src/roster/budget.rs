//! The budgets of a fleet's agents, and the budget that prevents an agent's attempts from starting.

use jiff::Timestamp;

use super::{Agent, Roster};
use crate::budget::{
    Amount, Budget, OverBudget, Period, PersonBudget, SpendLimits, Spending, SpendingLedger, microdollars,
};
use crate::chat::ChatPlatform;

impl SpendLimits {
    /// Returns the budgets that apply to an attempt of this agent now; none if nothing is limited.
    pub fn of(roster: &Roster, agent: &Agent, now: Timestamp) -> Option<Self> {
        Self::of_message(roster, agent, None, now)
    }

    /// Returns the budgets that apply to an attempt of a job; none if nothing is limited. `sender` is the platform and the
    /// id of the person whose message caused the job.
    pub fn of_message(
        roster: &Roster,
        agent: &Agent,
        sender: Option<(ChatPlatform, &str)>,
        now: Timestamp,
    ) -> Option<Self> {
        let own = agent.budget;
        let fleet = roster.budget;
        let person = sender.and_then(|(platform, person)| agent.budget_of(platform, person));
        let (day, month) = (Period::day(now, roster.zone()), Period::month(now, roster.zone()));
        let is_limited = !own.is_unlimited() || !fleet.is_unlimited() || person.is_some();
        is_limited.then_some(Self { own, fleet, person, day, month })
    }

    /// Returns only those limits that decide about the daily budget of a person: this budget, and the budgets of a job,
    /// which limit what is reserved for an attempt. None if the person has no budget.
    pub fn of_person(
        roster: &Roster,
        agent: &Agent,
        sender: (ChatPlatform, &str),
        now: Timestamp,
    ) -> Option<Self> {
        let limits = Self::of_message(roster, agent, Some(sender), now)?;
        let of_job = |budget: Budget| Budget { per_job_usd: budget.per_job_usd, ..Budget::default() };
        limits.person.is_some().then(|| Self {
            own: of_job(limits.own),
            fleet: of_job(limits.fleet),
            ..limits
        })
    }
}

impl Agent {
    /// Checks whether the jobs of one person have a daily budget.
    pub fn has_person_budget(&self) -> bool {
        let mut chats = self.chat.iter().flat_map(|chat| &chat.platforms);
        chats.any(|chat| chat.access.per_user_per_day_usd.is_some())
    }

    /// Returns the daily budget of a person, without its spending.
    fn budget_of(&self, platform: ChatPlatform, person: &str) -> Option<PersonBudget> {
        let limit = self.chat.as_ref()?.on(platform)?.access.per_user_per_day_usd?;
        let (person, spending) = (person.to_owned(), Spending::default());
        Some(PersonBudget { person, microdollars: microdollars(limit), spending })
    }
}

impl Roster {
    /// Checks whether there is a daily or monthly budget.
    pub fn has_budgets(&self) -> bool {
        self.budget.has_windows()
            || self.agents.iter().any(|agent| agent.budget.has_windows() || agent.has_person_budget())
    }

    /// Returns the budget that prevents attempts of the agent from starting now, if there is one.
    pub fn over_budget(&self, agent: &Agent, ledger: &SpendingLedger, now: Timestamp) -> Option<OverBudget> {
        let limits = SpendLimits::of(self, agent, now)?;
        let (own, highest_cost) = ledger.agents.get(&agent.name).copied().unwrap_or_default();
        limits.reserve(Amount::default(), &own, highest_cost, &ledger.fleet).err()
    }
}

//! Budgets: spend limits of a job, an agent and the whole fleet, by job, day and month.
//!
//! Before an attempt starts, the amount that it may need is **reserved**. When the attempt has ended, its actual cost
//! replaces the reservation. Therefore, concurrent attempts cannot each spend the same remaining budget. The rule
//! ([`SpendLimits::reserve`]):
//!
//! 1. Reserve the remaining budget of the job, if the job has a budget; else the highest cost among the agent's last
//!    attempts. Never reserve more than the smallest daily or monthly budget; otherwise, after one attempt that cost
//!    more than this budget, the agent could never run again.
//! 2. If neither the job's budget nor the cost of an earlier attempt is known, reserve the smallest remaining daily or
//!    monthly budget.
//! 3. The attempt starts only if the reservation fits into every daily and monthly budget, together with all other
//!    reservations. A reservation of 0 fits until all of a budget is spent.
//!
//! Without a daily or monthly budget, only the remaining budget of the job is reserved, and every attempt may start.
//! The rule applies to dollars and tokens separately.
//!
//! The daily budget of a person (`budget` of a chat) is one more daily budget for the jobs that the messages of this person
//! have caused.
//!
//! While the attempt runs, the reported spending is compared with all budgets ([`SpendLimits::used_up`]).

mod level;
mod period;
mod person;
mod words;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::job::{JobUsage, ModelUsage};
use crate::policy::Zone;
use crate::word::written_as;
pub use level::BudgetLevel;
pub use period::Period;
pub use person::PersonBudget;
pub use words::{
    assumed_sentence, cost_in_words, money, sum_in_words, tokens as tokens_in_words, unpriced_sentence,
};

/// Spend limits of an agent, of each job, or of all agents together. An unset key sets no limit.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Budget {
    /// Dollars for one job, all its attempts together.
    #[schemars(extend("exclusiveMinimum" = 0, "maximum" = 1_000_000))]
    pub per_job_usd: Option<f64>,
    /// Tokens for one job: input, output, and those written to and read from a cache.
    #[schemars(range(min = 1))]
    pub per_job_tokens: Option<u64>,
    /// Dollars from midnight to midnight, in the fleet's time zone.
    #[schemars(extend("exclusiveMinimum" = 0, "maximum" = 1_000_000))]
    pub per_day_usd: Option<f64>,
    #[schemars(range(min = 1))]
    pub per_day_tokens: Option<u64>,
    /// Dollars from the first of a month to the next, in the fleet's time zone.
    #[schemars(extend("exclusiveMinimum" = 0, "maximum" = 1_000_000))]
    pub per_month_usd: Option<f64>,
    #[schemars(range(min = 1))]
    pub per_month_tokens: Option<u64>,
}

/// Budget of all agents together. Its limits per job apply to each job of each agent.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct FleetBudget {
    #[serde(flatten)]
    pub limits: Budget,
    /// Time zone of days and months; unset means that of the machine. Required for a fleet on several machines.
    pub timezone: Option<Zone>,
}

/// An amount of dollars and tokens, spent or allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Amount {
    pub microdollars: u64,
    pub tokens: u64,
}

/// Current spending of an agent or a fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spending {
    /// Spending of ended attempts today.
    pub day: Amount,
    /// Spending of ended attempts this month.
    pub month: Amount,
    /// Spending that running attempts have reported.
    pub reported: Amount,
    /// Sum over the running attempts: for each attempt, its reservation or its reported spending, whichever is more.
    pub committed: Amount,
}

/// Highest cost among an agent's last attempts; none if it is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HighestCost {
    pub microdollars: Option<u64>,
    pub tokens: Option<u64>,
}

/// Spending of all agents at one moment.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SpendingLedger {
    pub agents: std::collections::HashMap<crate::id::AgentName, (Spending, HighestCost)>,
    /// Spending of all agents together, including agents that were removed from the fleet.
    pub fleet: Spending,
    /// Pending jobs that have no room in the daily budget of the person whose message caused them.
    pub over_person: std::collections::HashMap<crate::id::JobId, OverBudget>,
}

/// Time at which a runtime reports its usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UsageReporting {
    /// Reports tokens and dollars with each answer of the model.
    Continuous,
    /// Reports tokens with each answer; dollars follow from the configured prices.
    TokensContinuous,
    /// Reports tokens with each answer, and dollars at the end or earlier.
    CostAtEnd,
    /// May report nothing before the end.
    AtEnd,
}

/// Reason to stop an agent because of its budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Breach {
    Over(OverBudget),
    /// The agent used a model without a known price, and a budget in dollars applies.
    Unpriced,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Scope")]
pub enum BudgetOwner {
    Agent,
    Fleet,
    // The person on a chat platform whose message caused the job.
    Person,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Window")]
pub enum BudgetWindow {
    Job,
    Day,
    Month,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    Usd,
    Tokens,
}

written_as! {
    BudgetOwner { Agent = "agent", Fleet = "fleet", Person = "person" }
    BudgetWindow { Job = "job", Day = "day", Month = "month" }
    Unit { Usd = "usd", Tokens = "tokens" }
}

/// The budgets that apply to one attempt at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct SpendLimits {
    pub own: Budget,
    pub fleet: Budget,
    /// Budget of the person whose message caused the job.
    pub person: Option<PersonBudget>,
    pub day: Period,
    pub month: Period,
}

/// Amount that is reserved for an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reservation {
    pub amount: Amount,
}

/// A budget that is used up, or has no room for the next attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverBudget {
    pub scope: BudgetOwner,
    pub window: BudgetWindow,
    pub unit: Unit,
    /// The limit, in millionths of a dollar or in tokens, like all following amounts.
    pub limit: u64,
    /// Spending of ended attempts, plus the reported spending of running attempts.
    pub spent: u64,
    /// Reservations of running attempts beyond their reported spending.
    pub reserved: u64,
    /// Amount needed to start; 0 if nothing is to be started, or if the attempt is expected to cost nothing.
    pub needed: u64,
    /// Start of the next day or month; none for the budget of a job, which is not renewed.
    pub until: Option<jiff::Timestamp>,
}

impl SpendingLedger {
    /// Returns the spending as if some running attempts of an agent had ended: `reserved` is the sum of the parts of
    /// their reservations that they have not spent.
    #[must_use]
    pub fn without_reserved(&self, agent: &crate::id::AgentName, reserved: Amount) -> Self {
        let mut ledger = self.clone();
        ledger.fleet.committed = ledger.fleet.committed.minus(reserved);
        if let Some((own, _)) = ledger.agents.get_mut(agent) {
            own.committed = own.committed.minus(reserved);
        }
        ledger
    }
}

impl OverBudget {
    /// Checks whether the next attempt would fit if the running attempts spent no more than they have reported. If so,
    /// the next attempt has to wait only until the reservations of the running attempts end.
    pub const fn fits_after_running(&self) -> bool {
        self.spent.saturating_add(self.needed) <= self.limit && self.spent < self.limit
    }

    /// Returns the time until which this budget surely allows no further attempt; none if the next attempt has to wait
    /// only for running attempts, or if the budget is not renewed.
    fn blocks_until(&self) -> Option<jiff::Timestamp> {
        self.until.filter(|_| !self.fits_after_running())
    }
}

impl Amount {
    pub fn of(usage: &JobUsage) -> Self {
        let of_models = usage.per_model.values();
        let summed: f64 = of_models.clone().filter_map(|model| model.cost_usd).sum();
        Self {
            microdollars: microdollars(usage.total_cost_usd.unwrap_or(summed))
                .saturating_add(usage.assumed_usd.map_or(0, microdollars)),
            tokens: of_models.map(tokens).fold(0, u64::saturating_add),
        }
    }

    #[must_use]
    pub const fn plus(self, more: Self) -> Self {
        Self {
            microdollars: self.microdollars.saturating_add(more.microdollars),
            tokens: self.tokens.saturating_add(more.tokens),
        }
    }

    #[must_use]
    pub const fn minus(self, less: Self) -> Self {
        Self {
            microdollars: self.microdollars.saturating_sub(less.microdollars),
            tokens: self.tokens.saturating_sub(less.tokens),
        }
    }

    #[must_use]
    pub fn at_least(self, other: Self) -> Self {
        Self {
            microdollars: self.microdollars.max(other.microdollars),
            tokens: self.tokens.max(other.tokens),
        }
    }

    const fn get(self, unit: Unit) -> u64 {
        match unit {
            Unit::Usd => self.microdollars,
            Unit::Tokens => self.tokens,
        }
    }

    const fn set(&mut self, unit: Unit, value: u64) {
        match unit {
            Unit::Usd => self.microdollars = value,
            Unit::Tokens => self.tokens = value,
        }
    }
}

/// Returns the number of all tokens that a provider counts.
pub fn tokens(usage: &ModelUsage) -> u64 {
    usage
        .input_tokens
        .saturating_add(usage.output_tokens)
        .saturating_add(usage.cache_creation_input_tokens)
        .saturating_add(usage.cache_read_input_tokens)
}

/// Returns a used model whose cost is not known, unless the total cost of the job is known.
pub fn unpriced(usage: &JobUsage) -> Option<&str> {
    let mut models = usage.per_model.iter();
    let unpriced = models.find(|(_, used)| used.cost_usd.is_none() && !used.is_unused());
    unpriced.filter(|_| usage.total_cost_usd.is_none()).map(|(model, _)| model.as_str())
}

/// Assumed price of a token without a known price: a hundredth of a cent, which is more than nearly every model costs.
const UNKNOWN_TOKEN_MICRODOLLARS: u64 = 100;

/// Adds the assumed cost of an ended attempt whose cost was not reported although dollars were reserved. If its model
/// has no price, each token costs `UNKNOWN_TOKEN_MICRODOLLARS`, and the reported and the assumed cost together are at
/// most the reservation. If there is no usage and `silent` is true (see [`crate::attempt::Settlement`]), the assumed
/// cost is the whole reservation.
#[must_use]
pub fn assume(usage: Option<JobUsage>, silent: bool, reserved: Reservation) -> Option<JobUsage> {
    let max_microdollars = reserved.amount.microdollars;
    let assumed = match &usage {
        Some(usage) if unpriced(usage).is_some() => {
            let unknown = usage.per_model.values().filter(|used| used.cost_usd.is_none()).map(tokens);
            let unknown = unknown.fold(0, u64::saturating_add).saturating_mul(UNKNOWN_TOKEN_MICRODOLLARS);
            unknown.min(max_microdollars.saturating_sub(Amount::of(usage).microdollars))
        }
        None if silent => max_microdollars,
        Some(_) | None => 0,
    };
    if assumed == 0 {
        return usage;
    }
    #[expect(clippy::cast_precision_loss, reason = "exact up to nine billion dollars")]
    let assumed_usd = Some(assumed as f64 / 1e6);
    Some(JobUsage { assumed_usd, ..usage.unwrap_or_default() }.bounded())
}

/// Converts dollars to millionths of a dollar. Some numbers come from agents, so every number is accepted: NaN and
/// negative numbers count as 0, and more than a billion dollars counts as a billion.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to what fits")]
pub fn microdollars(dollars: f64) -> u64 {
    const MAX_MICRODOLLARS: f64 = 1e15;
    // Round up, so that rounding never lets spending exceed a limit. Subtract a tiny amount first, because the binary
    // form of 0.07 is slightly more than 0.07.
    if dollars.is_nan() {
        0
    } else {
        (dollars.clamp(0.0, MAX_MICRODOLLARS / 1e6) * 1e6 - 1e-4).ceil().max(0.0) as u64
    }
}

impl Spending {
    #[must_use]
    pub fn plus(self, more: Self) -> Self {
        Self {
            day: self.day.plus(more.day),
            month: self.month.plus(more.month),
            reported: self.reported.plus(more.reported),
            committed: self.committed.plus(more.committed),
        }
    }

    /// Returns the spending of ended attempts in the day or the month; never called for the window of a job.
    const fn settled(&self, window: BudgetWindow) -> Amount {
        match window {
            BudgetWindow::Day | BudgetWindow::Job => self.day,
            BudgetWindow::Month => self.month,
        }
    }
}

impl Budget {
    pub const fn is_unlimited(&self) -> bool {
        self.per_job_usd.is_none() && self.per_job_tokens.is_none() && !self.has_windows()
    }

    /// Checks whether a daily or monthly limit is set, which makes the spending of other attempts relevant.
    pub const fn has_windows(&self) -> bool {
        self.per_day_usd.is_some()
            || self.per_day_tokens.is_some()
            || self.per_month_usd.is_some()
            || self.per_month_tokens.is_some()
    }

    pub const fn is_in_dollars(&self) -> bool {
        self.per_job_usd.is_some() || self.per_day_usd.is_some() || self.per_month_usd.is_some()
    }

    pub fn limit(&self, window: BudgetWindow, unit: Unit) -> Option<u64> {
        match (window, unit) {
            (BudgetWindow::Job, Unit::Usd) => self.per_job_usd.map(microdollars),
            (BudgetWindow::Day, Unit::Usd) => self.per_day_usd.map(microdollars),
            (BudgetWindow::Month, Unit::Usd) => self.per_month_usd.map(microdollars),
            (BudgetWindow::Job, Unit::Tokens) => self.per_job_tokens,
            (BudgetWindow::Day, Unit::Tokens) => self.per_day_tokens,
            (BudgetWindow::Month, Unit::Tokens) => self.per_month_tokens,
        }
    }
}

impl SpendLimits {
    pub const fn has_windows(&self) -> bool {
        self.own.has_windows() || self.fleet.has_windows() || self.person.is_some()
    }

    pub const fn is_in_dollars(&self) -> bool {
        self.own.is_in_dollars() || self.fleet.is_in_dollars() || self.person.is_some()
    }

    /// Returns the remaining budget of the job; none if the job has no such budget. `spent` is the spending of its
    /// earlier attempts.
    fn left_for_job(&self, unit: Unit, spent: Amount) -> Option<u64> {
        let limits =
            [&self.own, &self.fleet].into_iter().filter_map(|budget| budget.limit(BudgetWindow::Job, unit));
        // At least 1, even if nothing is left: the attempt may start, and is stopped as soon as it reports spending.
        limits.min().map(|limit| limit.saturating_sub(spent.get(unit)).max(1))
    }

    /// Returns every daily and monthly budget with the spending of its owner.
    fn windows<'s>(
        &'s self,
        unit: Unit,
        own: &'s Spending,
        fleet: &'s Spending,
    ) -> impl Iterator<Item = OverBudget> + 's {
        let person = self.person.as_ref();
        let limit_of = move |scope, window| match scope {
            BudgetOwner::Agent => self.own.limit(window, unit),
            BudgetOwner::Fleet => self.fleet.limit(window, unit),
            BudgetOwner::Person if window == BudgetWindow::Day && unit == Unit::Usd => {
                person.map(|person| person.microdollars)
            }
            BudgetOwner::Person => None,
        };
        let of_person = person.map(|person| (BudgetOwner::Person, &person.spending));
        let owners = [(BudgetOwner::Agent, own), (BudgetOwner::Fleet, fleet)].into_iter().chain(of_person);
        owners.flat_map(move |(scope, spending)| {
            [BudgetWindow::Day, BudgetWindow::Month].into_iter().filter_map(move |window| {
                let limit = limit_of(scope, window)?;
                let reported = spending.reported.get(unit);
                let spent = spending.settled(window).get(unit).saturating_add(reported);
                let reserved = spending.committed.get(unit).saturating_sub(reported);
                let end = if window == BudgetWindow::Day { self.day.end } else { self.month.end };
                Some(OverBudget { scope, window, unit, limit, spent, reserved, needed: 0, until: Some(end) })
            })
        })
    }

    /// Checks whether another attempt may start. Returns its reservation, or, of the budgets without room for it, the
    /// budget that blocks it for the longest time. `spent` is the spending of earlier attempts of its job.
    pub fn reserve(
        &self,
        spent: Amount,
        own: &Spending,
        highest_cost: HighestCost,
        fleet: &Spending,
    ) -> Result<Reservation, OverBudget> {
        let (mut amount, mut longest) = (Amount::default(), None::<OverBudget>);
        for unit in [Unit::Usd, Unit::Tokens] {
            let highest_cost = match unit {
                Unit::Usd => highest_cost.microdollars,
                Unit::Tokens => highest_cost.tokens,
            };
            let job_limit = self.left_for_job(unit, spent);
            let smallest = self.windows(unit, own, fleet).map(|window| window.limit).min();
            let Some(smallest) = smallest else {
                amount.set(unit, job_limit.unwrap_or(0));
                continue;
            };
            let known = job_limit.or(highest_cost).map(|amount| amount.min(smallest));
            let left = |window: &OverBudget| {
                window.limit.saturating_sub(window.spent).saturating_sub(window.reserved)
            };
            let needed = known.unwrap_or(1);
            let over = self
                .windows(unit, own, fleet)
                .map(|window| OverBudget { needed, ..window })
                // No attempt starts if all is spent, not even one that is expected to cost nothing.
                .filter(|window| left(window) < needed || window.spent >= window.limit);
            let over = over.max_by_key(OverBudget::blocks_until);
            longest = match (longest, over) {
                (Some(longest), Some(over)) if over.blocks_until() <= longest.blocks_until() => Some(longest),
                (longest, over) => over.or(longest),
            };
            let all = self.windows(unit, own, fleet).map(|window| left(&window)).min();
            amount.set(unit, known.or(all).unwrap_or(0));
        }
        longest.map_or(Ok(Reservation { amount }), Err)
    }

    /// Returns a budget that is used up while an attempt runs, if there is one. `job` is the spending of the job so
    /// far, including this attempt. Reservations of other attempts do not count.
    pub fn used_up(&self, job: Amount, own: &Spending, fleet: &Spending) -> Option<OverBudget> {
        [Unit::Usd, Unit::Tokens].into_iter().find_map(|unit| {
            let job_window = [(BudgetOwner::Agent, &self.own), (BudgetOwner::Fleet, &self.fleet)];
            let job_window = job_window.into_iter().filter_map(|(scope, budget)| {
                let limit = budget.limit(BudgetWindow::Job, unit)?;
                let spent = job.get(unit);
                let (window, reserved, needed) = (BudgetWindow::Job, 0, 0);
                Some(OverBudget { scope, window, unit, limit, spent, reserved, needed, until: None })
            });
            let job_window = job_window.min_by_key(|job_window| job_window.limit);
            job_window
                .into_iter()
                .chain(self.windows(unit, own, fleet))
                .find(|window| window.spent >= window.limit)
        })
    }

    /// Returns the allowance of an attempt in millionths of a dollar, as known at its start, for programs that enforce
    /// a limit themselves; none if no budget in dollars applies.
    pub fn allowance_microdollars(&self, spent: Amount, own: &Spending, fleet: &Spending) -> Option<u64> {
        let windows = self.windows(Unit::Usd, own, fleet);
        let left = windows.map(|window| window.limit.saturating_sub(window.spent).max(1));
        left.chain(self.left_for_job(Unit::Usd, spent)).min()
    }
}

#[cfg(test)]
mod tests;

//! Budgets: what may be spent by a job, in a day and in a month, by an agent and by the whole fleet.
//!
//! Before an attempt starts, what it may need is **reserved**; when it has ended, what it did cost takes the place of
//! that. So a budget holds however many start at once. The rule ([`SpendLimits::reserve`]):
//!
//! 1. what the job's own budget leaves, if it has one; else the dearest of the agent's last attempts; never more than
//!    the smallest budget of a day or month, or a run that once cost too much could never run again;
//! 2. if neither is known, everything that is left;
//! 3. it starts only if that fits into every budget, with all that others have reserved.
//!
//! While it runs, what it is heard to have spent is held against the same budgets ([`SpendLimits::passed`]).

mod period;
mod words;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::job::{JobUsage, ModelUsage};
use crate::policy::Zone;
use crate::word::written_as;
pub use period::Period;
pub use words::{assumed_sentence, money, tokens as tokens_in_words, unpriced_sentence};

/// What an agent may spend, or each job, or all agents together. What is unset sets no limit.
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

/// The budget of all agents together; what it says of a job holds for each job of each agent.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct FleetBudget {
    #[serde(flatten)]
    pub limits: Budget,
    /// Where days and months begin; unset means the time zone of the machine. A fleet on several machines has to say it.
    pub timezone: Option<Zone>,
}

/// What was spent or may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Amount {
    pub microdollars: u64,
    pub tokens: u64,
}

/// How an agent, or a fleet, stands with its money.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spending {
    /// By attempts that have ended, today and this month.
    pub day: Amount,
    pub month: Amount,
    /// What attempts under way are known to have spent.
    pub heard: Amount,
    /// What they have spent or reserved, whichever is more.
    pub held: Amount,
}

/// The most that one of an agent's last attempts cost; none where nobody knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Dearest {
    pub microdollars: Option<u64>,
    pub tokens: Option<u64>,
}

/// Everybody's spending at one moment.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ledger {
    pub agents: std::collections::HashMap<crate::id::AgentName, (Spending, Dearest)>,
    /// Of all together, also of agents that have left the fleet.
    pub fleet: Spending,
}

/// When it is known what an agent has spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tells {
    /// With each answer of the model, tokens and dollars.
    AllAsItGoes,
    /// Tokens with each answer; dollars are a matter of prices.
    TokensAsItGoes,
    /// Tokens with each answer, dollars when it ends, or earlier.
    DollarsInTheEnd,
    /// Perhaps nothing before it ends.
    AllInTheEnd,
}

/// Why an agent may not go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Breach {
    Over(OverBudget),
    /// It has used a model whose price nobody knows, and dollars are limited.
    Unpriced,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    Agent,
    Fleet,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Window {
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
    Scope { Agent = "agent", Fleet = "fleet" }
    Window { Job = "job", Day = "day", Month = "month" }
    Unit { Usd = "usd", Tokens = "tokens" }
}

/// The budgets that one attempt has to keep, at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct SpendLimits {
    pub own: Budget,
    pub fleet: Budget,
    pub day: Period,
    pub month: Period,
}

/// What an attempt has reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reservation {
    pub amount: Amount,
}

/// A budget that is used up, or does not have room for what is to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverBudget {
    pub scope: Scope,
    pub window: Window,
    pub unit: Unit,
    /// In millionths of a dollar, or tokens, as all that follows.
    pub limit: u64,
    /// By attempts that have ended, and heard of those under way.
    pub spent: u64,
    /// What attempts under way have reserved beyond that.
    pub reserved: u64,
    /// What is needed for a start; 0 if there is none to be made.
    pub needed: u64,
    /// When the next day or month begins; none for a job, whose budget does not come back.
    pub until: Option<jiff::Timestamp>,
}

impl OverBudget {
    /// It only waits for others to end: what they have really spent leaves room.
    pub const fn may_pass(&self) -> bool {
        self.spent.saturating_add(self.needed) <= self.limit && self.spent < self.limit
    }
}

impl Amount {
    pub fn of(usage: &JobUsage) -> Self {
        let of_models = usage.per_model.values();
        let told: f64 = of_models.clone().filter_map(|model| model.cost_usd).sum();
        Self {
            microdollars: microdollars(usage.total_cost_usd.unwrap_or(told))
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

/// All that a provider counts.
pub fn tokens(usage: &ModelUsage) -> u64 {
    usage
        .input_tokens
        .saturating_add(usage.output_tokens)
        .saturating_add(usage.cache_creation_input_tokens)
        .saturating_add(usage.cache_read_input_tokens)
}

/// A model that was used and has no dollars, if nobody says what all of them cost together.
pub fn unpriced(usage: &JobUsage) -> Option<&str> {
    let mut models = usage.per_model.iter();
    let unpriced = models.find(|(_, used)| used.cost_usd.is_none() && !used.is_unused());
    unpriced.filter(|_| usage.total_cost_usd.is_none()).map(|(model, _)| model.as_str())
}

/// What a token counts for that nobody told the price of: a hundredth of a cent, more than nearly any model asks.
const UNKNOWN_TOKEN: u64 = 100;

/// An attempt has ended for which dollars were reserved, and nobody told what it cost: it was cut short, or its model has
/// no price. What it cost at most counts, and that is never more than was reserved. `silent` is one that was cut short
/// before it could tell anything.
#[must_use]
pub fn assume(usage: Option<JobUsage>, silent: bool, reserved: Reservation) -> Option<JobUsage> {
    let most = reserved.amount.microdollars;
    let assumed = match &usage {
        Some(usage) if unpriced(usage).is_some() => {
            let unknown = usage.per_model.values().filter(|used| used.cost_usd.is_none()).map(tokens);
            let unknown = unknown.fold(0, u64::saturating_add).saturating_mul(UNKNOWN_TOKEN);
            unknown.min(most.saturating_sub(Amount::of(usage).microdollars))
        }
        None if silent => most,
        Some(_) | None => 0,
    };
    if assumed == 0 {
        return usage;
    }
    #[expect(clippy::cast_precision_loss, reason = "exact up to nine billion dollars")]
    let assumed_usd = Some(assumed as f64 / 1e6);
    Some(JobUsage { assumed_usd, ..usage.unwrap_or_default() }.bounded())
}

/// Agents say these numbers: what is no amount of money is none.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to what fits")]
pub fn microdollars(dollars: f64) -> u64 {
    const MOST: f64 = 1e15;
    // Up, so that a limit is never passed by what was rounded away. A hair is not: 0.07 is a little more in binary.
    if dollars.is_nan() { 0 } else { (dollars.clamp(0.0, MOST / 1e6) * 1e6 - 1e-4).ceil().max(0.0) as u64 }
}

impl Spending {
    #[must_use]
    pub fn plus(self, more: Self) -> Self {
        Self {
            day: self.day.plus(more.day),
            month: self.month.plus(more.month),
            heard: self.heard.plus(more.heard),
            held: self.held.plus(more.held),
        }
    }

    /// Of the attempts that have ended.
    const fn settled(&self, window: Window) -> Amount {
        match window {
            Window::Day | Window::Job => self.day,
            Window::Month => self.month,
        }
    }
}

impl Budget {
    pub const fn is_unlimited(&self) -> bool {
        self.per_job_usd.is_none() && self.per_job_tokens.is_none() && !self.has_windows()
    }

    /// Whether it has to be known what others spend.
    pub const fn has_windows(&self) -> bool {
        self.per_day_usd.is_some()
            || self.per_day_tokens.is_some()
            || self.per_month_usd.is_some()
            || self.per_month_tokens.is_some()
    }

    pub const fn is_in_dollars(&self) -> bool {
        self.per_job_usd.is_some() || self.per_day_usd.is_some() || self.per_month_usd.is_some()
    }

    pub fn limit(&self, window: Window, unit: Unit) -> Option<u64> {
        match (window, unit) {
            (Window::Job, Unit::Usd) => self.per_job_usd.map(microdollars),
            (Window::Day, Unit::Usd) => self.per_day_usd.map(microdollars),
            (Window::Month, Unit::Usd) => self.per_month_usd.map(microdollars),
            (Window::Job, Unit::Tokens) => self.per_job_tokens,
            (Window::Day, Unit::Tokens) => self.per_day_tokens,
            (Window::Month, Unit::Tokens) => self.per_month_tokens,
        }
    }
}

impl SpendLimits {
    pub const fn has_windows(&self) -> bool {
        self.own.has_windows() || self.fleet.has_windows()
    }

    pub const fn is_in_dollars(&self) -> bool {
        self.own.is_in_dollars() || self.fleet.is_in_dollars()
    }

    /// What the job's budget leaves after `spent` by its earlier attempts; none if it has no such budget.
    fn left_for_job(&self, unit: Unit, spent: Amount) -> Option<u64> {
        let limits =
            [&self.own, &self.fleet].into_iter().filter_map(|budget| budget.limit(Window::Job, unit));
        // At least something: one that has nothing left ends by itself as soon as it is heard.
        limits.min().map(|limit| limit.saturating_sub(spent.get(unit)).max(1))
    }

    /// Every budget of a day or month, with how its owner stands.
    fn windows<'s>(
        &'s self,
        unit: Unit,
        own: &'s Spending,
        fleet: &'s Spending,
    ) -> impl Iterator<Item = OverBudget> + 's {
        let owners = [(Scope::Agent, &self.own, own), (Scope::Fleet, &self.fleet, fleet)];
        owners.into_iter().flat_map(move |(scope, budget, spending)| {
            [Window::Day, Window::Month].into_iter().filter_map(move |window| {
                let limit = budget.limit(window, unit)?;
                let heard = spending.heard.get(unit);
                let spent = spending.settled(window).get(unit).saturating_add(heard);
                let reserved = spending.held.get(unit).saturating_sub(heard);
                let end = if window == Window::Day { self.day.end } else { self.month.end };
                Some(OverBudget { scope, window, unit, limit, spent, reserved, needed: 0, until: Some(end) })
            })
        })
    }

    /// Whether another attempt may start, and what it takes with it. `spent` is what earlier attempts of its job did.
    pub fn reserve(
        &self,
        spent: Amount,
        own: &Spending,
        dearest: Dearest,
        fleet: &Spending,
    ) -> Result<Reservation, OverBudget> {
        let mut amount = Amount::default();
        for unit in [Unit::Usd, Unit::Tokens] {
            let dearest = match unit {
                Unit::Usd => dearest.microdollars,
                Unit::Tokens => dearest.tokens,
            };
            let of_job = self.left_for_job(unit, spent);
            let smallest = self.windows(unit, own, fleet).map(|window| window.limit).min();
            let Some(smallest) = smallest else {
                amount.set(unit, of_job.unwrap_or(0));
                continue;
            };
            let known = of_job.or(dearest).map(|wish| wish.clamp(1, smallest));
            let left = |window: &OverBudget| {
                window.limit.saturating_sub(window.spent).saturating_sub(window.reserved)
            };
            let needed = known.unwrap_or(1);
            let over = self
                .windows(unit, own, fleet)
                .map(|window| OverBudget { needed, ..window })
                .filter(|window| left(window) < needed);
            // The one that lasts longest.
            if let Some(over) = over.max_by_key(|over| over.until) {
                return Err(over);
            }
            let all = self.windows(unit, own, fleet).map(|window| left(&window)).min();
            amount.set(unit, known.or(all).unwrap_or(0));
        }
        Ok(Reservation { amount })
    }

    /// The budget that is used up while an attempt runs, if one is. `job` is what the job has spent so far, with this
    /// attempt; what others have only reserved does not count.
    pub fn passed(&self, job: Amount, own: &Spending, fleet: &Spending) -> Option<OverBudget> {
        [Unit::Usd, Unit::Tokens].into_iter().find_map(|unit| {
            let of_job = [(Scope::Agent, &self.own), (Scope::Fleet, &self.fleet)];
            let of_job = of_job.into_iter().filter_map(|(scope, budget)| {
                let limit = budget.limit(Window::Job, unit)?;
                let spent = job.get(unit);
                let (window, reserved, needed) = (Window::Job, 0, 0);
                Some(OverBudget { scope, window, unit, limit, spent, reserved, needed, until: None })
            });
            let of_job = of_job.min_by_key(|of_job| of_job.limit);
            of_job
                .into_iter()
                .chain(self.windows(unit, own, fleet))
                .find(|window| window.spent >= window.limit)
        })
    }

    /// The dollars that an attempt may spend, as far as is known when it starts: for programs that keep a limit
    /// themselves.
    pub fn most_dollars(&self, spent: Amount, own: &Spending, fleet: &Spending) -> Option<u64> {
        let windows = self.windows(Unit::Usd, own, fleet);
        let left = windows.map(|window| window.limit.saturating_sub(window.spent).max(1));
        left.chain(self.left_for_job(Unit::Usd, spent)).min()
    }
}

#[cfg(test)]
mod tests;

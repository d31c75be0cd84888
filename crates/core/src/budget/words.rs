//! Texts about money and budgets.

use std::fmt;

use jiff::tz::TimeZone;

use super::{BudgetOwner, BudgetWindow, OverBudget, Unit, microdollars};
use crate::id::AgentName;
use crate::job::JobUsage;

/// Formats money: `$0.05`, `$12.00`, `$0.0012`. An amount below a dollar keeps all its digits, and a larger amount is
/// rounded to cents.
pub fn money(microdollars: u64) -> String {
    let (dollars, rest) = (microdollars / 1_000_000, microdollars % 1_000_000);
    if rest % 10_000 == 0 || dollars > 0 {
        let cents = microdollars.saturating_add(5_000) / 10_000;
        return format!("${}.{:02}", cents / 100, cents % 100);
    }
    let digits = format!("{rest:06}");
    format!("$0.{}", digits.trim_end_matches('0'))
}

/// Formats a number of tokens: `12,345 tokens`.
pub fn tokens(tokens: u64) -> String {
    let digits = tokens.to_string();
    let mut grouped = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    format!("{grouped} tokens")
}

impl Unit {
    pub fn amount(self, value: u64) -> String {
        match self {
            Self::Usd => money(value),
            Self::Tokens => tokens(value),
        }
    }
}

impl OverBudget {
    /// Returns the config key that sets this budget.
    pub fn key(&self) -> String {
        format!("budget.per_{}_{}", self.window, self.unit)
    }

    /// Describes on one line which budget is used up or has no room, how much was spent, and what to do.
    pub fn sentence(&self, agent: &AgentName, zone: &TimeZone) -> String {
        let (limit, spent) = (self.unit.amount(self.limit), self.unit.amount(self.spent));
        let owner = Owner { over: self, agent };
        let reserved = match self.reserved {
            0 => String::new(),
            reserved => format!(", {} reserved by running jobs", self.unit.amount(reserved)),
        };
        // For a run of unknown cost, `needed` is 1, the smallest amount. This amount says nothing about the cost, so it
        // is not shown.
        let text = if self.spent < self.limit && self.needed <= 1 {
            format!("{owner} of {limit} has no room: {spent} spent{reserved}, and nothing is left")
        } else if self.spent < self.limit {
            let needed = self.unit.amount(self.needed);
            format!("{owner} of {limit} has no room: {spent} spent{reserved}, and a job may need {needed}")
        } else {
            format!("{owner} of {limit} is used up: {spent} spent")
        };
        match self.until {
            Some(_) if self.fits_after_running() => format!(
                "{text}; the job starts when running jobs leave enough; to reserve less for each job, set `budget.per_job_{}`",
                self.unit
            ),
            Some(until) => {
                let until = until.to_zoned(zone.clone());
                format!(
                    "{text}; the budget is renewed at {}; to start earlier, raise `{}`",
                    until.strftime("%Y-%m-%d %H:%M %:z"),
                    self.key()
                )
            }
            None => format!("{text}; to allow a higher cost, raise `{}`", self.key()),
        }
    }
}

/// Describes on one line why an agent that used a model without a price is stopped.
pub fn unpriced_sentence(agent: &AgentName, model: &str) -> String {
    format!(
        "the price of {model} is not known, so the budget in dollars that applies to {agent} cannot be enforced; add it to `prices` of the root file: `prices: {{{model}: {{input: …, output: …}}}}`"
    )
}

/// Describes on one line why a job counts with a higher cost than was reported; none if no cost was assumed.
pub fn assumed_sentence(usage: &JobUsage) -> Option<String> {
    let assumed = money(microdollars(usage.assumed_usd?));
    let unpriced = usage.per_model.iter().find(|(_, used)| used.cost_usd.is_none() && !used.is_unused());
    Some(match unpriced {
        Some((model, _)) => format!(
            "{assumed} of that is assumed, because the price of {model} is not known; add it to `prices` of the root file"
        ),
        None => format!("{assumed} of that is assumed, because the job ended before it reported its cost"),
    })
}

struct Owner<'a> {
    over: &'a OverBudget,
    agent: &'a AgentName,
}

impl fmt::Display for Owner<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.over.window, self.over.scope) {
            (BudgetWindow::Job, BudgetOwner::Agent) => write!(f, "{}'s job budget", self.agent),
            (BudgetWindow::Job, BudgetOwner::Fleet) => write!(f, "the fleet's job budget"),
            (BudgetWindow::Day, BudgetOwner::Agent) => write!(f, "{}'s daily budget", self.agent),
            (BudgetWindow::Month, BudgetOwner::Agent) => write!(f, "{}'s monthly budget", self.agent),
            (BudgetWindow::Day, BudgetOwner::Fleet) => write!(f, "the fleet's daily budget"),
            (BudgetWindow::Month, BudgetOwner::Fleet) => write!(f, "the fleet's monthly budget"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_of_money_and_tokens_are_formatted() {
        for (microdollars, expected) in [
            (0, "$0.00"),
            (50_000, "$0.05"),
            (1_200, "$0.0012"),
            (12_345, "$0.012345"),
            (1_000_001, "$1.00"),
            (1_234_567, "$1.23"),
            (12_000_000, "$12.00"),
        ] {
            assert_eq!(money(microdollars), expected);
        }
        assert_eq!(tokens(999), "999 tokens");
        assert_eq!(tokens(1_234_567), "1,234,567 tokens");
    }
}

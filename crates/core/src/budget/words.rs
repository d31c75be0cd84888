//! Texts about money and budgets.

use jiff::tz::TimeZone;

use super::{Amount, BudgetOwner, BudgetWindow, OverBudget, Unit, microdollars, unpriced};
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

/// Formats the cost of a job from its usage, or from several parts of its usage: `$0.05`, or `≤ $0.05` if a part of the
/// cost is assumed. Returns none if no cost is reported or assumed.
pub fn cost_in_words<'a>(usages: impl IntoIterator<Item = &'a JobUsage>) -> Option<String> {
    let (mut cost, mut is_known, mut is_assumed) = (0_u64, false, false);
    for usage in usages {
        cost = cost.saturating_add(Amount::of(usage).microdollars);
        is_assumed |= usage.assumed_usd.is_some();
        is_known |= is_assumed || usage.has_reported_cost();
    }
    is_known.then(|| at_most(cost, is_assumed))
}

/// Formats a cost in dollars that already contains its assumed part, as sums in the API do.
pub fn sum_in_words(dollars: f64, assumed: Option<f64>) -> String {
    at_most(microdollars(dollars), assumed.is_some())
}

fn at_most(microdollars: u64, is_assumed: bool) -> String {
    let sign = if is_assumed { "≤ " } else { "" };
    format!("{sign}{}", money(microdollars))
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
        match self.scope {
            BudgetOwner::Agent | BudgetOwner::Fleet => format!("budget.per_{}_{}", self.window, self.unit),
            BudgetOwner::Person => format!("budget.per_user_per_{}_{}", self.window, self.unit),
        }
    }

    /// Names the budget and its limit.
    fn budget(&self, agent: &AgentName, limit: &str) -> String {
        let window = match self.window {
            BudgetWindow::Job => "job",
            BudgetWindow::Day => "daily",
            BudgetWindow::Month => "monthly",
        };
        match self.scope {
            BudgetOwner::Agent => format!("{agent}'s {window} budget of {limit}"),
            BudgetOwner::Fleet => format!("the fleet's {window} budget of {limit}"),
            BudgetOwner::Person => {
                format!("the {window} budget of {limit} of the person who sent the message")
            }
        }
    }

    /// Describes on one line which budget is used up or has no room, how much was spent, and what to do.
    pub fn sentence(&self, agent: &AgentName, zone: &TimeZone) -> String {
        let (limit, spent) = (self.unit.amount(self.limit), self.unit.amount(self.spent));
        let budget = self.budget(agent, &limit);
        let reserved = match self.reserved {
            0 => String::new(),
            reserved => format!(", {} reserved by running jobs", self.unit.amount(reserved)),
        };
        // For an attempt of unknown cost, `needed` is 1, the smallest amount. This amount says nothing about the cost,
        // so it is not shown.
        let text = if self.spent < self.limit && self.needed <= 1 {
            format!("{budget} has no room: {spent} spent{reserved}, and nothing is left")
        } else if self.spent < self.limit {
            let needed = self.unit.amount(self.needed);
            format!("{budget} has no room: {spent} spent{reserved}, and a job may need {needed}")
        } else {
            format!("{budget} is used up: {spent} spent")
        };
        match self.until {
            Some(_) if self.fits_after_running() => format!(
                "{text}; the job starts when running jobs have ended and enough of the budget is free; to reserve less for each job, set or lower `budget.per_job_{}`",
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
    Some(match unpriced(usage) {
        Some(model) => format!(
            "{assumed} of that is assumed, because the price of {model} is not known; add it to `prices` of the root file"
        ),
        None => format!("{assumed} of that is assumed, because an attempt did not report its cost"),
    })
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

    #[test]
    fn an_assumed_cost_has_a_reason() {
        let unpriced = "because the price of b is not known; add it to `prices` of the root file";
        let unreported = "because an attempt did not report its cost";
        for (json, expected) in [
            (r#"{"per_model":{"b":{"input_tokens":5}},"assumed_usd":0.5}"#, Some(unpriced)),
            (
                r#"{"per_model":{"a":{"input_tokens":5,"cost_usd":1},"b":{"input_tokens":5}},"assumed_usd":0.5}"#,
                Some(unpriced),
            ),
            (
                r#"{"per_model":{"b":{"input_tokens":5}},"total_cost_usd":1,"assumed_usd":0.5}"#,
                Some(unreported),
            ),
            (r#"{"assumed_usd":0.5}"#, Some(unreported)),
            (r#"{"total_cost_usd":1}"#, None),
        ] {
            let usage: JobUsage = serde_json::from_str(json).unwrap();
            let expected = expected.map(|reason| format!("$0.50 of that is assumed, {reason}"));
            assert_eq!(assumed_sentence(&usage), expected, "{json}");
        }
    }

    #[test]
    fn costs_of_jobs_are_formatted() {
        let usage = |json: &str| serde_json::from_str::<JobUsage>(json).unwrap();
        for (case, parts, expected) in [
            ("nothing", vec![], None),
            ("tokens without a cost", vec![r#"{"per_model":{"a":{"input_tokens":5}}}"#], None),
            ("a total", vec![r#"{"total_cost_usd":0.5}"#], Some("$0.50")),
            ("a total of 0", vec![r#"{"total_cost_usd":0}"#], Some("$0.00")),
            ("a model that costs nothing", vec![r#"{"per_model":{"a":{"cost_usd":0}}}"#], Some("$0.00")),
            (
                "one of two models has a cost",
                vec![r#"{"per_model":{"a":{"input_tokens":5,"cost_usd":0.25},"b":{"input_tokens":5}}}"#],
                Some("$0.25"),
            ),
            (
                "the total counts, not the models",
                vec![r#"{"per_model":{"a":{"cost_usd":0.25}},"total_cost_usd":0.5}"#],
                Some("$0.50"),
            ),
            ("only assumed", vec![r#"{"assumed_usd":0.4}"#], Some("≤ $0.40")),
            (
                "partly assumed",
                vec![r#"{"per_model":{"a":{"cost_usd":0.25}},"assumed_usd":0.5}"#],
                Some("≤ $0.75"),
            ),
            (
                "several parts",
                vec![
                    r#"{"total_cost_usd":0.5,"assumed_usd":0.25}"#,
                    r#"{"per_model":{"a":{"cost_usd":0.25}}}"#,
                ],
                Some("≤ $1.00"),
            ),
        ] {
            let parts: Vec<JobUsage> = parts.into_iter().map(usage).collect();
            assert_eq!(cost_in_words(&parts).as_deref(), expected, "{case}");
        }
        assert_eq!(
            (sum_in_words(1.5, None), sum_in_words(1.5, Some(0.1))),
            ("$1.50".into(), "≤ $1.50".into())
        );
    }
}

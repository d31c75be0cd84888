//! `cowhand usage`: shows spending and the rest of the budgets.

use std::path::Path;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use cowhand_core::budget::{Unit, money, sum_in_words, tokens_in_words};
use cowhand_core::duration;
use cowhand_core::id::AgentName;
use cowhand_core::interval::Interval;
use cowhand_core::job::ModelUsage;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use super::print::{self, Table};
use super::{Failure, complete, location};
use cowhand_web::api::{BudgetView, Total, UsageView, segment};

#[derive(Debug, Args)]
pub(super) struct UsageArgs {
    /// Grouping of the sums
    #[arg(long, value_enum, default_value_t = By::Day)]
    by: By,
    /// First day: a date, or how long ago (7d) [default: 29 days before the last]
    #[arg(long, value_name = "DAY")]
    since: Option<Day>,
    /// Last day [default: today]
    #[arg(long, value_name = "DAY")]
    until: Option<Day>,
    /// Only spending of this agent
    #[arg(long, add = complete::agents())]
    agent: Option<AgentName>,
    /// Print JSON, with all sums
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    Day,
    Agent,
    Model,
    Schedule,
    WorkItem,
    Job,
}

/// Day, written as a date or as a duration before now.
#[derive(Debug, Clone, Copy)]
struct Day(Date);

impl FromStr for Day {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(date) = text.parse() {
            return Ok(Self(date));
        }
        let ago: Interval =
            text.parse().map_err(|_| "expected a date (2026-01-31) or how long ago (7d)".to_owned())?;
        let then = Timestamp::now().checked_sub(ago.duration()).map_err(|error| error.to_string())?;
        Ok(Self(TimeZone::system().to_datetime(then).date()))
    }
}

impl UsageArgs {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        let view =
            location::ask(config, async |client| Ok(client.get::<UsageView>(&self.address()).await?))?;
        if self.json {
            print::json(&view);
            return Ok(());
        }
        print::prose(&heading(&view), 2);
        if view.total.attempts > 0 {
            print::line("");
            self.table(&view).print();
        }
        if !view.budgets.is_empty() {
            print::line("");
            budgets(&view.budgets, Timestamp::now()).print();
        }
        Ok(())
    }

    fn address(&self) -> String {
        let filters = [
            ("since", self.since.map(|Day(day)| day.to_string())),
            ("until", self.until.map(|Day(day)| day.to_string())),
            ("agent", self.agent.as_ref().map(ToString::to_string)),
        ];
        let filters =
            filters.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", segment(&value?))));
        format!("usage?{}", filters.collect::<Vec<_>>().join("&"))
    }

    fn table(&self, view: &UsageView) -> Table {
        match self.by {
            By::Day => {
                let days = view.days.iter().filter(|day| day.total.attempts > 0);
                sums("DAY", days.map(|day| (day.day.to_string(), day.total)))
            }
            By::Agent => sums("AGENT", view.agents.iter().map(|row| (row.agent.to_string(), row.total))),
            By::Schedule => sums(
                "SCHEDULE",
                view.schedules.iter().map(|row| {
                    let name = row.schedule.as_ref().map_or("(by hand)", |schedule| schedule.as_str());
                    (format!("{}/{name}", row.agent), row.total)
                }),
            ),
            By::Model => {
                let mut table = Table::new(&["MODEL", "COST", "IN", "OUT", "CACHED"])
                    .optional_columns(&["CACHED", "OUT", "IN"]);
                for row in &view.models {
                    let name = row.model.clone().unwrap_or_else(|| "(not reported)".to_owned());
                    table.row(std::iter::once(name).chain(cells(&row.usage, row.assumed_usd)));
                }
                table
            }
            By::WorkItem => {
                let mut table =
                    Table::new(&["WORK ITEM", "COST", "IN", "OUT", "CACHED", "ATTEMPTS", "TITLE"])
                        .optional_columns(&["ATTEMPTS", "CACHED", "OUT", "IN", "TITLE"]);
                for row in &view.work_items {
                    let cells = std::iter::once(row.work_item.clone())
                        .chain(cells(&row.total.usage, row.total.assumed_usd));
                    table.row(cells.chain([row.total.attempts.to_string(), print::cell(&row.title)]));
                }
                table
            }
            By::Job => {
                let mut table =
                    Table::new(&["JOB", "AGENT", "SCHEDULE", "STATUS", "COST", "TOKENS", "ATTEMPTS"])
                        .optional_columns(&["ATTEMPTS", "SCHEDULE", "TOKENS", "STATUS"]);
                for row in &view.jobs {
                    table.row([
                        row.job.to_string(),
                        row.agent.to_string(),
                        row.schedule.as_ref().map(ToString::to_string).unwrap_or_default(),
                        row.status.to_string(),
                        row.cost_usd.map(|cost| sum_in_words(cost, row.assumed_usd)).unwrap_or_default(),
                        count(row.tokens),
                        row.attempts.to_string(),
                    ]);
                }
                table
            }
        }
    }
}

fn heading(view: &UsageView) -> String {
    let usage = &view.total.usage;
    let (tokens, attempts) = (cowhand_core::budget::tokens(usage), view.total.attempts);
    let spent = match usage.cost_usd {
        None if tokens > 0 || attempts > 0 => "no price reported".to_owned(),
        cost => sum_in_words(cost.unwrap_or_default(), view.total.assumed_usd),
    };
    let assumed = view.total.assumed_usd.map(|assumed| format!(" ({} of it assumed)", dollars(assumed)));
    let spent = spent + &assumed.unwrap_or_default();
    let tokens = tokens_in_words(tokens);
    let attempts = if attempts == 1 { "1 attempt".to_owned() } else { format!("{attempts} attempts") };
    format!("{} to {} ({}): {spent}, {tokens}, {attempts}", view.since, view.until, view.time_zone)
}

fn sums(what: &'static str, rows: impl Iterator<Item = (String, Total)>) -> Table {
    let mut table = Table::new(&[what, "COST", "IN", "OUT", "CACHED", "ATTEMPTS"])
        .optional_columns(&["ATTEMPTS", "CACHED", "OUT", "IN"]);
    for (name, total) in rows {
        let cells = std::iter::once(name).chain(cells(&total.usage, total.assumed_usd));
        table.row(cells.chain([total.attempts.to_string()]));
    }
    table
}

fn cells(usage: &ModelUsage, assumed: Option<f64>) -> [String; 4] {
    [
        usage.cost_usd.map(|cost| sum_in_words(cost, assumed)).unwrap_or_default(),
        count(usage.input_tokens),
        count(usage.output_tokens),
        count(usage.cache_creation_input_tokens.saturating_add(usage.cache_read_input_tokens)),
    ]
}

fn dollars(dollars: f64) -> String {
    money(cowhand_core::budget::microdollars(dollars))
}

fn count(tokens: u64) -> String {
    tokens_in_words(tokens).trim_end_matches(" tokens").to_owned()
}

/// Builds the table of budgets with their remaining amounts.
fn budgets(budgets: &[BudgetView], now: Timestamp) -> Table {
    let mut table = Table::new(&["BUDGET", "LIMIT", "SPENT", "RESERVED", "LEFT", "RESETS"])
        .optional_columns(&["RESERVED", "RESETS", "SPENT"]);
    for budget in budgets {
        let owner = budget.agent.as_ref().map_or("fleet", |agent| agent.as_str());
        let formatted = |amount: f64| amount_of(budget.unit, amount.max(0.0));
        table.row([
            format!("{owner}, {}", budget.window),
            formatted(budget.limit),
            formatted(budget.spent),
            formatted(budget.reserved),
            formatted(budget.limit - budget.spent - budget.reserved),
            duration::relative_to_now(now, budget.until),
        ]);
    }
    table
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "tokens are whole and not negative"
)]
fn amount_of(unit: Unit, amount: f64) -> String {
    match unit {
        Unit::Usd => dollars(amount),
        Unit::Tokens => tokens_in_words(amount as u64),
    }
}

//! Checks of budgets against the usage that a runtime reports: a limit in dollars needs a known price if the runtime
//! reports only tokens, and usage that is reported only at the end cannot stop a running job.

use crate::budget::{Budget, UsageReporting};
use crate::config::load::{Draft, Loader};
use crate::config::node::Location;
use crate::config::problem::Problem;
use crate::roster::Agent;
use crate::runtime::Runtime;

/// Keys that the check needs. If one of them is wrong, the check is left out, because it could report errors that do
/// not exist.
pub(in crate::config) const NEEDED_KEYS: [&str; 4] = ["runtime", "command", "model", "chat"];

pub(in crate::config) fn check(loader: &mut Loader<'_>, draft: &Draft, agent: &Agent) {
    let budgets = [agent.budget, loader.budget.limits];
    let has_only_person_budget = budgets.iter().all(Budget::is_unlimited);
    let of_person = person_budget(draft, agent);
    if has_only_person_budget && of_person.is_none() {
        return;
    }
    let own = draft.node.get("budget").map(|budget| (budget.at, "budget".to_owned()));
    let in_chat = of_person.clone().filter(|_| own.is_none() && has_only_person_budget);
    let (at, own_key) = own.or(in_chat).unwrap_or_else(|| (draft.entry, "budget".to_owned()));
    for (number, agent) in agent.with_fallbacks() {
        let fallback = draft.node.get("fallback").filter(|_| number.is_some());
        let at = fallback.map_or(at, |fallback| fallback.at);
        let key = number.map_or_else(|| own_key.clone(), |number| format!("fallback[{number}]"));
        let in_dollars = budgets.iter().any(Budget::is_in_dollars) || of_person.is_some();
        if let Some(problem) = problem(loader, &agent, in_dollars, at) {
            loader.problems.add(problem.key(draft.key_of(&key)));
        }
    }
}

/// Returns the place and the key of the daily budget of a person, if the agent has one.
fn person_budget(draft: &Draft, agent: &Agent) -> Option<(Location, String)> {
    let mut chats = agent.chat.iter().flat_map(|chat| &chat.platforms);
    let chat = chats.find(|chat| chat.access.per_user_per_day_usd.is_some())?;
    let written = draft.node.get("chat").and_then(|node| node.get(chat.platform.as_str())?.get("budget"));
    let at = written.map_or(draft.entry, |written| written.at);
    Some((at, format!("chat.{}.budget", chat.platform)))
}

fn problem(loader: &Loader<'_>, agent: &Agent, in_dollars: bool, at: Location) -> Option<Problem> {
    let has_price = agent.program.model.as_ref().is_some_and(|model| loader.prices.has(model));
    match agent.usage_reporting() {
        UsageReporting::TokensContinuous if in_dollars && !has_price => Some(without_price(agent, at)),
        UsageReporting::AtEnd => {
            let (reporter, help) = match agent.program.known_runtime() {
                Runtime::Acp => (
                    "its program".to_owned(),
                    "`per_job_…` limits the amount that is reserved for a job, and `timeout` limits its duration".to_owned(),
                ),
                known => (
                    format!("`{known}`", known = known.name()),
                    format!("`runtime: {}` reports its tokens with each answer of the model", known.name()),
                ),
            };
            let message = format!(
                "a running job may exceed this budget: with `runtime: acp`, {reporter} may report its usage only at the end"
            );
            Some(Problem::warning(at, message).help(help))
        }
        UsageReporting::TokensContinuous | UsageReporting::Continuous | UsageReporting::CostAtEnd => None,
    }
}

fn without_price(agent: &Agent, at: Location) -> Problem {
    let name = agent.program.known_runtime().name();
    let (message, help) = match &agent.program.model {
        Some(model) => (
            format!("a budget in dollars needs the price of {model}, because `{name}` reports only tokens"),
            format!("add it to `prices` of the root file: `prices: {{{model}: {{input: …, output: …}}}}`"),
        ),
        None => (
            format!("a budget in dollars needs a `model` with a price, because `{name}` reports only tokens"),
            "set `model`, and its price in `prices` of the root file".to_owned(),
        ),
    };
    Problem::error(at, message).help(help)
}

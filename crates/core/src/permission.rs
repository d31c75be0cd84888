//! What an agent may do without asking, what it has to ask for, and what it may never do.
//!
//! A rule names a tool (`Read`, `mcp__files__*`) or shell commands (`Bash(cargo *)`). Of a shell command its words are
//! compared, as a shell would read them, never its text: see [`shell`] for what may match an allow rule, and
//! [`within`] for what may be hidden in one.

mod rule;
mod runner;
mod shell;
mod within;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use rule::{Rule, RuleError};

/// Rules for tools: `deny` comes before `ask`, and `ask` before `allow`. What no rule names is asked.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("x-strict" = true))]
pub struct Permissions {
    /// Done without asking.
    pub allow: Option<Vec<Rule>>,
    /// Asked, even if `allow` names it, too.
    pub ask: Option<Vec<Rule>>,
    /// Never done.
    pub deny: Option<Vec<Rule>>,
}

/// What the rules say about one use of a tool; the later, the stricter.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    Allow,
    Ask,
    Deny { rule: String },
}

/// Of the agent's rules and the schedule's the stricter count. A schedule never allows what its agent's rules do not;
/// without an `allow` of its own it only forbids and asks.
pub fn decide(
    agent: Option<&Permissions>,
    schedule: Option<&Permissions>,
    tool: &str,
    input: &Value,
) -> Verdict {
    let of_agent = agent.map(|rules| rules.verdict(tool, input).unwrap_or(Verdict::Ask));
    let of_schedule = schedule.and_then(|rules| {
        let unnamed = rules.allow.is_some().then_some(Verdict::Ask);
        rules.verdict(tool, input).or(unnamed)
    });
    of_agent.into_iter().chain(of_schedule).max().unwrap_or(Verdict::Ask)
}

impl Permissions {
    /// None if no rule names it.
    fn verdict(&self, tool: &str, input: &Value) -> Option<Verdict> {
        let could = |rules: &Option<Vec<Rule>>| {
            rules.iter().flatten().find(|rule| rule.could_mean(tool, input)).map(Rule::to_string)
        };
        if let Some(rule) = could(&self.deny) {
            return Some(Verdict::Deny { rule });
        }
        if could(&self.ask).is_some() {
            return Some(Verdict::Ask);
        }
        let allowed = self.allow.iter().flatten().any(|rule| rule.surely_means(tool, input));
        allowed.then_some(Verdict::Allow)
    }
}

#[cfg(test)]
mod tests;

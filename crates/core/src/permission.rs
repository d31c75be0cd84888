//! Permissions: which tools an agent may use without asking, which need an answer of a person, and which are denied.
//!
//! A rule names a tool (`Read`, `mcp__files__*`) or shell commands (`Bash(cargo *)`). Shell commands are compared by
//! their words, as a shell would split them, and never by their text. [`shell`] decides which commands can match an
//! allow rule, and [`possible_commands`] finds commands that are hidden in other commands.

mod possible_commands;
mod rule;
mod runner;
mod shell;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use rule::{Rule, RuleError};

/// Rules for tools: `deny` overrides `ask`, and `ask` overrides `allow`. A person is asked about a tool that no rule
/// names.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("x-strict" = true))]
pub struct Permissions {
    /// Tools and commands to allow without asking.
    pub allow: Option<Vec<Rule>>,
    /// Tools and commands to ask about, even if `allow` names them.
    pub ask: Option<Vec<Rule>>,
    /// Tools and commands to deny.
    pub deny: Option<Vec<Rule>>,
}

/// The tools of an agent: which it has, and which it may use.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolAccess {
    /// Mode in which the agent's program decides about the use of a tool if no other setting decides about that use.
    pub mode: PermissionMode,
    /// Rules for `mode: ask`; without rules a person is asked about every use.
    pub permissions: Option<Permissions>,
    /// Tools that the agent has; `None` means all tools.
    pub available: Option<Vec<String>>,
    /// Tools that need no permission.
    pub allowed: Vec<String>,
    /// Tools that never get permission.
    pub denied: Vec<String>,
}

// herdctl has the same default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum PermissionMode {
    Default,
    #[default]
    AcceptEdits,
    BypassPermissions,
    Plan,
    Delegate,
    DontAsk,
    // The rules in `permissions` decide. A person decides about uses that an `ask` rule matches, or that no rule
    // matches.
    Ask,
}

/// Decision about one use of a tool, ordered from the least to the most strict.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ToolVerdict {
    Allow,
    Ask,
    Deny { rule: String },
}

/// Returns the stricter decision of the agent's rules and the schedule's rules. A schedule never allows more than its
/// agent. Without its own `allow`, a schedule only adds denials and asks. Without any rules, a person is asked.
pub fn decide(
    agent: Option<&Permissions>,
    schedule: Option<&Permissions>,
    tool: &str,
    input: &Value,
) -> ToolVerdict {
    let of_agent = agent.map(|rules| rules.verdict(tool, input).unwrap_or(ToolVerdict::Ask));
    let of_schedule = schedule.and_then(|rules| {
        let unnamed = rules.allow.is_some().then_some(ToolVerdict::Ask);
        rules.verdict(tool, input).or(unnamed)
    });
    of_agent.into_iter().chain(of_schedule).max().unwrap_or(ToolVerdict::Ask)
}

impl Permissions {
    /// Returns the decision of these rules; none if no rule matches.
    fn verdict(&self, tool: &str, input: &Value) -> Option<ToolVerdict> {
        let may_match = |rules: &Option<Vec<Rule>>| {
            rules.iter().flatten().find(|rule| rule.may_match(tool, input)).map(Rule::to_string)
        };
        if let Some(rule) = may_match(&self.deny) {
            return Some(ToolVerdict::Deny { rule });
        }
        if may_match(&self.ask).is_some() {
            return Some(ToolVerdict::Ask);
        }
        let allowed = self.allow.iter().flatten().any(|rule| rule.matches_surely(tool, input));
        allowed.then_some(ToolVerdict::Allow)
    }
}

#[cfg(test)]
mod tests;

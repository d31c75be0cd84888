//! Decides by the agent's config whether an ACP agent may use a tool. A tool that `denied_tools` names, or that is
//! missing in `tools`, is forbidden. A tool that is not forbidden is refused if neither `allowed_tools` nor the
//! permission mode allows it. In the mode `ask`, the rules of the fleet or a person decide about every tool that is not
//! forbidden.

use std::collections::VecDeque;

use cowhand_core::permission::PermissionMode;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::short;

/// Number of tool calls whose names and kinds are remembered. Agents are expected to have fewer concurrent calls.
const MAX_REMEMBERED_CALLS: usize = 256;

/// Rules of the agent's config. Tools are named as the agent names them, or by their kind in the protocol.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PermissionRules {
    pub mode: PermissionMode,
    /// The only tools that the agent may use; `None` if the config has no such list.
    pub tools: Option<Vec<String>>,
    pub allowed: Vec<String>,
    pub denied: Vec<String>,
}

/// Facts that the agent states about a tool call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ToolFacts {
    pub(super) id: String,
    name: Option<String>,
    kind: Option<String>,
    title: Option<String>,
}

/// Decision with its reason. `Ask` means that the rules of the fleet or a person decide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PermissionVerdict {
    Allow(String),
    Refuse(String),
    Ask,
}

/// The rules, and the known tool calls.
#[derive(Debug)]
pub(super) struct PermissionJudge {
    rules: PermissionRules,
    calls: VecDeque<ToolFacts>,
}

impl PermissionJudge {
    pub(super) const fn new(rules: PermissionRules) -> Self {
        Self { rules, calls: VecDeque::new() }
    }

    /// Adds the facts of a tool call or of its update to the known facts about the call, and returns all of them.
    pub(super) fn update_call(&mut self, call: &Value) -> ToolFacts {
        let stated = ToolFacts::read(call);
        if let Some(known) = self.calls.iter_mut().find(|known| known.id == stated.id) {
            // The first name and the first kind that the agent states are kept.
            known.name = known.name.take().or(stated.name);
            known.kind = known.kind.take().or(stated.kind);
            known.title = stated.title.or(known.title.take());
            return known.clone();
        }
        if self.calls.len() == MAX_REMEMBERED_CALLS {
            self.calls.pop_front();
        }
        self.calls.push_back(stated.clone());
        stated
    }

    /// Decides whether the agent may use a tool.
    pub(super) fn judge(&self, tool: &ToolFacts) -> PermissionVerdict {
        if let Some(why) = self.forbidden(tool) {
            return PermissionVerdict::Refuse(why);
        }
        let rules = &self.rules;
        if rules.mode == PermissionMode::Ask {
            return PermissionVerdict::Ask;
        }
        if let Some(rule) = rules.allowed.iter().find(|rule| tool.is_allowed_by(rule)) {
            return PermissionVerdict::Allow(format!("`allowed_tools` has {rule:?}"));
        }
        let kind = tool.kind.as_deref().unwrap_or_default();
        let reads = matches!(kind, "read" | "search" | "think");
        let edits = matches!(kind, "edit" | "move");
        let allowed = match rules.mode {
            PermissionMode::BypassPermissions => true,
            PermissionMode::AcceptEdits | PermissionMode::Delegate => reads || edits,
            PermissionMode::Default | PermissionMode::DontAsk | PermissionMode::Plan => reads,
            PermissionMode::Ask => false,
        };
        let mode = json!(rules.mode);
        let mode = mode.as_str().unwrap_or_default();
        if allowed {
            PermissionVerdict::Allow(format!(
                "`permission_mode: {mode}` allows {}",
                if reads { "reading" } else { "this use" }
            ))
        } else {
            PermissionVerdict::Refuse(format!(
                "no rule allows {}: `permission_mode` is {mode}",
                tool.display_name()
            ))
        }
    }

    /// Returns why the config forbids the tool in every permission mode; `None` if the tool is not forbidden.
    pub(super) fn forbidden(&self, tool: &ToolFacts) -> Option<String> {
        let PermissionRules { tools, denied, .. } = &self.rules;
        if let Some(rule) = denied.iter().find(|rule| tool.is_denied_by(rule)) {
            return Some(format!("`denied_tools` has {rule:?}"));
        }
        // A tool without a name could be one of the denied tools.
        let named = denied.iter().find(|rule| !is_kind(bare(rule)));
        if let (Some(rule), None) = (named, &tool.name) {
            return Some(format!(
                "`denied_tools` has {rule:?}, and the agent does not say which tool {} is; kinds ({}) can be denied",
                tool.display_name(),
                TOOL_KINDS.join(", ")
            ));
        }
        let among = |tools: &Vec<String>| tools.iter().any(|rule| tool.is_allowed_by(rule));
        tools
            .as_ref()
            .is_some_and(|tools| !among(tools))
            .then(|| format!("{} is not in `tools`", tool.display_name()))
    }
}

const TOOL_KINDS: [&str; 10] =
    ["read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"];

fn is_kind(word: &str) -> bool {
    TOOL_KINDS.contains(&word)
}

/// Returns the name of a rule without its pattern: `Bash` of `Bash(git *)`.
fn bare(rule: &str) -> &str {
    rule.split('(').next().unwrap_or_default().trim()
}

/// Compares a word with a rule, without case. A `*` at the end of the rule matches anything.
fn matches(rule: &str, word: &str) -> bool {
    match rule.strip_suffix('*') {
        Some(start) => word.get(..start.len()).is_some_and(|begins| begins.eq_ignore_ascii_case(start)),
        None => rule.eq_ignore_ascii_case(word),
    }
}

impl ToolFacts {
    /// Returns the name for the rules of the fleet: the tool's name, or else its kind.
    pub(super) fn rule_name(&self) -> String {
        self.name.clone().or_else(|| self.kind.clone()).unwrap_or_else(|| "other".to_owned())
    }

    fn read(call: &Value) -> Self {
        let text =
            |value: Option<&Value>| value.and_then(Value::as_str).map(short).filter(|text| !text.is_empty());
        let meta = call.get("_meta");
        let of_meta = |key: &str| meta.and_then(|meta| meta.get(key));
        // The protocol has no fixed field for the name yet.
        let name = text(call.get("name"))
            .or_else(|| text(of_meta("toolName")))
            .or_else(|| text(of_meta("claudeCode").and_then(|claude| claude.get("toolName"))));
        Self {
            id: text(call.get("toolCallId")).unwrap_or_default(),
            name,
            kind: text(call.get("kind")),
            title: text(call.get("title")),
        }
    }

    /// Returns the name for people.
    fn display_name(&self) -> String {
        let what = self.name.as_ref().or(self.kind.as_ref()).map_or("a tool", String::as_str);
        match self.title.as_ref().filter(|title| title.as_str() != what) {
            Some(title) => format!("{what} ({title})"),
            None => what.to_owned(),
        }
    }

    /// Returns true if the rule allows the tool. A rule for some uses, such as `Bash(git *)`, allows no use, because
    /// only the tool is known and not its use. A title allows nothing either, because the model may have written it.
    fn is_allowed_by(&self, rule: &str) -> bool {
        let known = [&self.name, &self.kind];
        known.into_iter().flatten().any(|word| matches(rule, word))
    }

    /// Returns true if the rule denies the tool. A rule against some uses denies every use, because only the tool is
    /// known and not its use. A rule also denies a tool by its title.
    fn is_denied_by(&self, rule: &str) -> bool {
        let known = [&self.name, &self.kind, &self.title];
        known.into_iter().flatten().any(|word| matches(bare(rule), word))
    }
}

/// Returns the input of a tool call, which a person sees in an ask. If the agent states no input, returns the title,
/// the locations and the content of the call instead. No permission rule reads a command from these three fields.
pub(super) fn input_of(call: &Value) -> Value {
    let stated = |key: &str| call.get(key).filter(|value| !value.is_null() && **value != json!({}));
    if let Some(input) = stated("rawInput") {
        return input.clone();
    }
    let instead = ["title", "locations", "content"].into_iter();
    instead.filter_map(|key| Some((key.to_owned(), stated(key)?.clone()))).collect::<Map<_, _>>().into()
}

/// Returns the outcome of a request for permission, chosen from the options that the request offers. If no option fits,
/// the outcome is `cancelled`.
pub(super) fn outcome(verdict: &PermissionVerdict, mode: PermissionMode, options: &Value) -> Value {
    let offered = |kind: &str| {
        let options = options.as_array().into_iter().flatten();
        options.filter(|option| option["kind"] == kind).find_map(|option| option["optionId"].as_str())
    };
    let option = match verdict {
        PermissionVerdict::Allow(_) => {
            // A permanent permission is given only if everything is allowed anyway.
            let always =
                (mode == PermissionMode::BypassPermissions).then(|| offered("allow_always")).flatten();
            offered("allow_once").or(always).or_else(|| offered("reject_once"))
        }
        PermissionVerdict::Refuse(_) | PermissionVerdict::Ask => offered("reject_once"),
    };
    match option {
        Some(option) => json!({ "outcome": { "outcome": "selected", "optionId": option } }),
        None => json!({ "outcome": { "outcome": "cancelled" } }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(settings: &Value) -> PermissionRules {
        let list = |key: &str| serde_json::from_value(settings[key].clone()).ok();
        PermissionRules {
            mode: serde_json::from_value(settings["mode"].clone()).unwrap_or(PermissionMode::AcceptEdits),
            tools: list("tools"),
            allowed: list("allowed").unwrap_or_default(),
            denied: list("denied").unwrap_or_default(),
        }
    }

    #[test]
    fn tool_calls_without_permission_are_refused() {
        let shell = json!({"toolCallId": "1", "name": "Bash", "kind": "execute", "title": "git push"});
        let edit = json!({"toolCallId": "1", "kind": "edit", "_meta": {"claudeCode": {"toolName": "Write"}}});
        let read = json!({"toolCallId": "1", "kind": "read", "_meta": {"toolName": "read_file"}});
        let nameless = json!({"toolCallId": "1", "kind": "execute", "title": "Bash"});
        let unknown = json!({"toolCallId": "1"});
        let fetch = json!({"toolCallId": "1", "name": "mcp__web__get", "kind": "fetch"});
        for (settings, call, allowed) in [
            (json!({}), &shell, false),
            (json!({}), &edit, true),
            (json!({}), &read, true),
            (json!({}), &fetch, false),
            (json!({}), &unknown, false),
            (json!({"mode": "delegate"}), &edit, true),
            (json!({"mode": "default"}), &edit, false),
            (json!({"mode": "dontAsk"}), &read, true),
            (json!({"mode": "plan"}), &edit, false),
            (json!({"mode": "bypassPermissions"}), &shell, true),
            (json!({"mode": "bypassPermissions"}), &unknown, true),
            (json!({"mode": "bypassPermissions", "denied": ["bash"]}), &shell, false),
            (json!({"mode": "bypassPermissions", "denied": ["execute"]}), &nameless, false),
            // A rule against some uses denies every use; a rule for some uses allows none.
            (json!({"mode": "bypassPermissions", "denied": ["Bash(rm *)"]}), &shell, false),
            (json!({"allowed": ["Bash(git *)"]}), &shell, false),
            (json!({"allowed": ["Bash"]}), &shell, true),
            (json!({"allowed": ["execute"]}), &shell, true),
            (json!({"allowed": ["Bash"], "denied": ["Bash"]}), &shell, false),
            (json!({"allowed": ["mcp__web__*"]}), &fetch, true),
            (json!({"allowed": ["mcp__other__*"]}), &fetch, false),
            // A title is not a name.
            (json!({"allowed": ["Bash"]}), &nameless, false),
            // A tool without a name may be the denied tool.
            (json!({"mode": "bypassPermissions", "denied": ["WebFetch"]}), &nameless, false),
            (json!({"mode": "bypassPermissions", "denied": ["fetch"]}), &nameless, true),
            (json!({"mode": "bypassPermissions", "tools": ["Read"]}), &shell, false),
            (json!({"mode": "bypassPermissions", "tools": ["Bash"]}), &shell, true),
            (json!({"mode": "bypassPermissions", "tools": []}), &read, false),
            // A tool in `tools` is available; it still needs permission.
            (json!({"tools": ["Bash"]}), &shell, false),
        ] {
            let mut permissions = PermissionJudge::new(rules(&settings));
            let tool = permissions.update_call(call);
            let verdict = permissions.judge(&tool);
            assert_eq!(
                matches!(verdict, PermissionVerdict::Allow(_)),
                allowed,
                "{settings} {call}: {verdict:?}"
            );
        }
    }

    #[test]
    fn earlier_updates_of_a_tool_call_are_remembered() {
        let mut permissions = PermissionJudge::new(rules(&json!({"allowed": ["Bash"]})));
        permissions.update_call(&json!({"toolCallId": "7", "name": "Bash", "kind": "execute"}));
        let asked = permissions.update_call(&json!({"toolCallId": "7", "title": "ls", "name": "Read"}));
        assert_eq!(
            permissions.judge(&asked),
            PermissionVerdict::Allow("`allowed_tools` has \"Bash\"".to_owned())
        );
        for number in 0..1000 {
            permissions.update_call(&json!({"toolCallId": format!("c{number}")}));
        }
        assert_eq!(permissions.calls.len(), MAX_REMEMBERED_CALLS);
    }

    #[test]
    fn the_option_fits_the_verdict() {
        let all = json!([
            {"kind": "allow_always", "optionId": "aa"}, {"kind": "allow_once", "optionId": "ao"},
            {"kind": "reject_once", "optionId": "ro"}, {"kind": "reject_always", "optionId": "ra"},
        ]);
        let always =
            json!([{"kind": "allow_always", "optionId": "aa"}, {"kind": "reject_once", "optionId": "ro"}]);
        let (allow, refuse) =
            (PermissionVerdict::Allow(String::new()), PermissionVerdict::Refuse(String::new()));
        let (edits, bypass) = (PermissionMode::AcceptEdits, PermissionMode::BypassPermissions);
        for (verdict, mode, options, expected) in [
            (&allow, edits, &all, json!("ao")),
            (&refuse, edits, &all, json!("ro")),
            (&refuse, bypass, &all, json!("ro")),
            // A permanent permission is more than was allowed.
            (&allow, edits, &always, json!("ro")),
            (&allow, bypass, &always, json!("aa")),
            (&refuse, edits, &json!([{"kind": "allow_once", "optionId": "x"}]), Value::Null),
            (&allow, edits, &json!([]), Value::Null),
            (&refuse, edits, &Value::Null, Value::Null),
        ] {
            let answer = outcome(verdict, mode, options);
            assert_eq!(answer["outcome"]["optionId"], expected, "{verdict:?} {options}");
            let word = if expected.is_null() { "cancelled" } else { "selected" };
            assert_eq!(answer["outcome"]["outcome"], word);
        }
    }
}

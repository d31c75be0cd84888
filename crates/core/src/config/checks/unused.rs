//! Checks for settings without effect. A setting in `defaults` may have no effect for one agent and an effect for
//! another, so it is reported only if it has no effect for any agent.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use serde_json::json;

use crate::budget::Budget;
use crate::config::load::{Draft, Loader};
use crate::config::node::{Location, Node};
use crate::config::problem::{Problem, Problems};
use crate::config::resolve::schedule_node;
use crate::followup::Chain;
use crate::permission::{Permissions, Rule, ToolVerdict, decide};
use crate::policy::{ActiveHours, Overlap, Retry};
use crate::roster::Agent;
use crate::sandbox::{SandboxKind, SandboxRules};
use crate::trigger::TriggerConfig;

/// Warnings about settings, by location and text. The flag is true as long as no agent uses the setting.
#[derive(Debug, Clone, Default)]
pub(in crate::config) struct UnusedSettings(HashMap<(Location, String), (Problem, bool)>);

impl UnusedSettings {
    /// Records the message for a location, and whether the setting has no effect for this agent.
    fn record(&mut self, at: Location, message: impl Into<String>, key: impl Into<String>, is_unused: bool) {
        let problem = Problem::warning(at, message).key(key);
        let known = self.0.entry((at, problem.message.clone())).or_insert((problem, true));
        known.1 &= is_unused;
    }

    /// Adds the records of a part of the config.
    pub(in crate::config) fn add(&mut self, part: Self) {
        for (at, (problem, is_unused)) in part.0 {
            let known = self.0.entry(at).or_insert((problem, true));
            known.1 &= is_unused;
        }
    }

    pub(in crate::config) fn report(self, problems: &mut Problems) {
        self.0
            .into_values()
            .filter(|(_, is_unused)| *is_unused)
            .for_each(|(problem, _)| problems.add(problem));
    }
}

/// Keys that the check needs. If one of them is wrong, the check is left out, because it could warn of settings
/// that have an effect.
pub(in crate::config) const NEEDED_KEYS: [&str; 3] = ["permission_mode", "followups", "fleet_tools"];

pub(in crate::config) fn check(loader: &mut Loader<'_>, draft: &Draft, agent: &Agent) {
    let (is_alone, unused) = (loader.store.is_none(), &mut loader.unused);
    if let Some(budget) = draft.node.get("budget") {
        check_budget(unused, budget, &agent.budget, &draft.key_of("budget"));
    }
    if let Some(written) = draft.node.entry("ask_timeout") {
        let message = "`ask_timeout` has no effect without `permission_mode: ask`, `followups` or `fleet_tools`, because the agent cannot ask";
        unused.record(written.key_at, message, draft.key_of("ask_timeout"), !agent.needs_job_channel());
    }
    if let Some(written) = draft.node.entry("tools").filter(|_| agent.tools.available.is_none()) {
        let message = "`tools: []` allows all tools, as if the key were not set; list the tools to allow, or forbid tools with `denied_tools`";
        unused.record(written.key_at, message, draft.key_of("tools"), true);
    }
    if let Some(written) = draft.node.entry("on_lost_lease") {
        let message = "`on_lost_lease` has no effect without `store`, because only one node uses the file in the state folder";
        unused.record(written.key_at, message, draft.key_of("on_lost_lease"), is_alone);
    }
    check_work_source(unused, draft, agent);
    check_followups(unused, draft, agent);
    check_hooks(unused, draft, agent);
    let key_of_agent: &KeyPath<'_> = &|key| draft.key_of(key);
    check_retry(unused, &draft.node, &agent.retry, key_of_agent);
    check_sandbox(unused, &draft.node, agent.sandbox_rules.as_ref(), key_of_agent);
    check_allow_rules(unused, &draft.node, agent.tools.permissions.as_ref(), key_of_agent);
    for schedule in &agent.schedules {
        let Some(node) = schedule_node(draft, schedule.name.as_str()) else { continue };
        let key: &KeyPath<'_> = &|key| draft.key_of(&format!("schedules.{}.{key}", schedule.name));
        for empty in ["empty_usd", "empty_within"] {
            let Some(written) = node.get("breaker").and_then(|breaker| breaker.entry(empty)) else {
                continue;
            };
            let message = format!("`{empty}` has no effect without `empty_runs`");
            unused.record(
                written.key_at,
                message,
                key(&format!("breaker.{empty}")),
                schedule.breaker.empty_runs == 0,
            );
        }
        check_timing(unused, node, (&schedule.trigger, schedule.timing.overlap), key);
        check_active_hours(unused, node, schedule.timing.active_hours.as_ref(), key);
        check_retry(unused, node, &schedule.retry, key);
        check_sandbox(unused, node, schedule.sandbox_rules.as_deref(), key);
        check_schedule_sandbox(unused, node, agent, schedule.sandbox_rules.as_deref(), key);
        check_allow_rules(unused, node, schedule.permissions.as_deref(), key);
        check_schedule_allow(unused, node, agent, schedule.permissions.as_deref(), key);
    }
}

/// A function that returns the path of a key of an agent or a schedule, from the root of its file. It is called only
/// for keys that the config contains, because most of the checked keys are not there.
type KeyPath<'a> = dyn Fn(&str) -> String + 'a;

/// Checks for timing keys that a schedule of this type does not use.
fn check_timing(
    unused: &mut UnusedSettings,
    node: &Node,
    (trigger, overlap): (&TriggerConfig, Overlap),
    key: &KeyPath<'_>,
) {
    let is_cron = matches!(trigger, TriggerConfig::Cron { .. });
    let is_chat = matches!(trigger, TriggerConfig::Chat { .. });
    let recurs = is_cron || matches!(trigger, TriggerConfig::Interval { .. });
    for (name, is_used, types) in [
        ("misfire", is_cron, "`cron`"),
        ("max_lateness", is_cron || is_chat, "`cron` or `chat`"),
        ("overlap", recurs, "`cron` or `interval`"),
        ("jitter", recurs, "`cron` or `interval`"),
    ] {
        let Some(written) = node.entry(name).filter(|written| !written.node.is_null()) else { continue };
        let message = format!("`{name}` has no effect here: only schedules of type {types} use it");
        unused.record(written.key_at, message, key(name), !is_used);
    }
    // For all types except `cron` and `interval`, the loop above has recorded the key.
    if let Some(written) = node.entry("overlap").filter(|_| recurs) {
        let has_use = is_cron || overlap == Overlap::Skip;
        unused.record(written.key_at, OVERLAP_OF_INTERVAL, key("overlap"), !has_use);
    }
}

fn check_active_hours(
    unused: &mut UnusedSettings,
    node: &Node,
    hours: Option<&ActiveHours>,
    key: &KeyPath<'_>,
) {
    let (Some(hours), Some(written)) = (hours, node.entry("active_hours")) else { return };
    let message = "`active_hours` has no effect: without `days`, equal `start` and `end` allow every time";
    let is_unused = hours.start == hours.end && hours.days.is_empty();
    unused.record(written.key_at, message, key("active_hours"), is_unused);
}

const OVERLAP_OF_INTERVAL: &str = "`overlap` has almost no effect on an `interval`: it applies only while a job that a person started still runs, \
    because the interval counts from the end of the job that it fired; for jobs that may overlap, use `type: cron`";

/// Checks for a limit that is larger than the limit of a longer period.
pub(in crate::config) fn check_budget(
    unused: &mut UnusedSettings,
    written: &Node,
    budget: &Budget,
    key: &str,
) {
    let dollars = [budget.per_job_usd, budget.per_day_usd, budget.per_month_usd];
    check_limit_order(unused, written, ["per_job_usd", "per_day_usd", "per_month_usd"], dollars, key);
    let tokens = [budget.per_job_tokens, budget.per_day_tokens, budget.per_month_tokens];
    check_limit_order(unused, written, ["per_job_tokens", "per_day_tokens", "per_month_tokens"], tokens, key);
}

/// Compares each limit with the next limit that is set.
fn check_limit_order<T: PartialOrd + Copy>(
    unused: &mut UnusedSettings,
    written: &Node,
    names: [&str; 3],
    limits: [Option<T>; 3],
    key: &str,
) {
    let set: Vec<(&str, T)> =
        names.into_iter().zip(limits).filter_map(|(name, limit)| Some((name, limit?))).collect();
    for pair in set.windows(2) {
        let [(name, own), (other, next)] = pair else { continue };
        let Some(entry) = written.entry(name) else { continue };
        let message = format!("`{name}` is more than `{other}`, which is reached first");
        unused.record(entry.key_at, message, format!("{key}.{name}"), own > next);
    }
}

/// Checks whether a schedule takes items from the agent's own `work_source`. `default_work_sources` checks the key in
/// `defaults`.
fn check_work_source(unused: &mut UnusedSettings, draft: &Draft, agent: &Agent) {
    let Some(written) = draft.node.entry("work_source").filter(|written| !written.node.is_null()) else {
        return;
    };
    let (at, entry) = (written.key_at, draft.entry);
    let is_own = at.file == draft.home && (at.file != entry.file || at.start > entry.start);
    // A schedule with an error may take items from this source, so all schedules have to be readable.
    let schedules = draft.node.get("schedules");
    let are_all_read = schedules.is_none_or(|schedules| {
        schedules.entries().is_some_and(|written| written.len() == agent.schedules.len())
    });
    let message = "nothing takes items from this `work_source`: only schedules take items, and no schedule of this agent takes from it; \
                   add a schedule, for example `poll: {type: interval, interval: 5m}`";
    unused.record(
        at,
        message,
        draft.key_of("work_source"),
        is_own && are_all_read && agent.has_unused_work_source(),
    );
}

/// Warns of a `work_source` in `defaults` of which no schedule inherits a value. An agent or a schedule can add keys to
/// the inherited source, so each value is compared by its location.
pub(in crate::config) fn default_work_sources(loader: &mut Loader<'_>) {
    let mut inherited = HashSet::new();
    for draft in &loader.agents.drafts {
        let schedules = draft.node.get("schedules").and_then(Node::entries).into_iter().flatten();
        let sources = schedules.filter_map(|(_, schedule)| schedule.node.get("work_source"));
        inherited.extend(sources.flat_map(value_locations));
    }
    let has_agents = !loader.agents.drafts.is_empty();
    for source in std::mem::take(&mut loader.default_work_sources) {
        let is_inherited = value_locations(&source.node).iter().any(|at| inherited.contains(at));
        let message = "this `work_source` has no effect: only schedules take items, and no schedule inherits it; \
                       add a schedule without its own `work_source`, or remove the key";
        let key = "defaults.work_source";
        loader.unused.record(source.key_at, message, key, has_agents && !is_inherited);
    }
}

/// Returns the locations of all values in the node. A merged map gets the location of the map that was merged over it,
/// so maps do not count.
fn value_locations(node: &Node) -> Vec<Location> {
    match node.entries() {
        Some(entries) => entries.values().flat_map(|entry| value_locations(&entry.node)).collect(),
        None => vec![node.at],
    }
}

fn check_followups(unused: &mut UnusedSettings, draft: &Draft, agent: &Agent) {
    let (Some(followups), Some(written)) = (&agent.followups, draft.node.entry("followups")) else {
        return;
    };
    let begun = Timestamp::UNIX_EPOCH;
    let first = followups.next(Chain { made: 0, began: begun }, begun, begun);
    let (expires, min_interval) = (followups.expires(), followups.min_interval());
    let message = format!(
        "no follow-up is possible: `expires` ({expires}) is shorter than `min_interval` ({min_interval})"
    );
    unused.record(written.key_at, message, draft.key_of("followups"), first.is_err());
}

fn check_hooks(unused: &mut UnusedSettings, draft: &Draft, agent: &Agent) {
    for (list, hooks, jobs) in
        [("after_run", &agent.hooks.after_run, "job"), ("on_error", &agent.hooks.on_error, "failed job")]
    {
        let written = draft.node.get("hooks").and_then(|hooks| hooks.get(list)).map(Node::list);
        for (number, (hook, written)) in hooks.iter().zip(written.unwrap_or_default()).enumerate() {
            if let (Some(path), Some(entry)) = (&hook.when, written.entry("when")) {
                let is_bad =
                    path.split('.').any(|part| part.is_empty() || part.contains(char::is_whitespace));
                let message = format!(
                    "`when: {path}` is not a path such as `metadata.shouldNotify`, so this hook never runs"
                );
                unused.record(
                    entry.key_at,
                    message,
                    draft.key_of(&format!("hooks.{list}[{number}].when")),
                    is_bad,
                );
            }
            let Some(events) = written.entry("on_events") else { continue };
            let is_unused = hook.on_events.as_ref().is_some_and(Vec::is_empty);
            let key = draft.key_of(&format!("hooks.{list}[{number}].on_events"));
            let message = format!(
                "with `on_events: []` this hook never runs; remove the key to run it after every {jobs}"
            );
            unused.record(events.key_at, message, key, is_unused);
        }
    }
}

fn check_retry(unused: &mut UnusedSettings, owner: &Node, retry: &Retry, key: &KeyPath<'_>) {
    let Some(written) = owner.get("retry").and_then(|retry| retry.entry("on")) else { return };
    let message = "with `on: []` no job is retried, whatever the value of `max_attempts`";
    unused.record(written.key_at, message, key("retry.on"), retry.on.is_empty() && retry.max_attempts > 1);
}

fn check_sandbox(
    unused: &mut UnusedSettings,
    owner: &Node,
    sandbox: Option<&SandboxRules>,
    key: &KeyPath<'_>,
) {
    let (Some(sandbox), Some(written)) = (sandbox, owner.get("sandbox")) else { return };
    for name in ["image", "socket"] {
        let Some(entry) = written.entry(name) else { continue };
        let message = format!("`{name}` has no effect without `kind: docker`");
        let key = key(&format!("sandbox.{name}"));
        unused.record(entry.key_at, message, key, sandbox.kind != SandboxKind::Docker);
    }
}

/// Checks for paths and network access that a schedule's sandbox grants and its agent's sandbox denies.
fn check_schedule_sandbox(
    unused: &mut UnusedSettings,
    owner: &Node,
    agent: &Agent,
    sandbox: Option<&SandboxRules>,
    key: &KeyPath<'_>,
) {
    let (Some(sandbox), Some(of_agent)) = (sandbox, &agent.sandbox_rules) else { return };
    let Some(written) = owner.get("sandbox") else { return };
    let lost = sandbox.keys_beyond(of_agent);
    for name in ["write", "read", "network"] {
        let Some(entry) = written.entry(name) else { continue };
        let message = "all or part of this has no effect: a schedule can only restrict the sandbox of its agent further; add it to the sandbox of the agent, too";
        unused.record(entry.key_at, message, key(&format!("sandbox.{name}")), lost.contains(&name));
    }
}

/// Checks for allow rules without effect: an allow rule with a pattern matches only plain commands, as
/// `permission/shell.rs` defines them. It never allows a command that runs other commands or uses shell syntax. Such a
/// command is denied if a deny rule may match it. Otherwise a person is asked, unless an allow rule without a pattern
/// matches it.
fn check_allow_rules(
    unused: &mut UnusedSettings,
    owner: &Node,
    permissions: Option<&Permissions>,
    key: &KeyPath<'_>,
) {
    let rules = permissions.and_then(|permissions| permissions.allow.as_deref()).unwrap_or_default();
    let written = owner.get("permissions").and_then(|permissions| permissions.get("allow"));
    for (number, (rule, written)) in rules.iter().zip(written.map(Node::list).unwrap_or_default()).enumerate()
    {
        let message = format!(
            "`{rule}` has no effect: an allow rule matches only plain commands, and this one runs other commands or uses shell syntax"
        );
        let key = key(&format!("permissions.allow[{number}]"));
        unused.record(written.at, message, key, !can_allow(rule));
    }
}

/// Checks whether the rule allows a command that is made from its pattern; true for a rule without a pattern.
fn can_allow(rule: &Rule) -> bool {
    let text = rule.to_string();
    let Some((tool, pattern)) = text.split_once('(') else { return true };
    let pattern = pattern.trim_end_matches(')').replace(":*", " *");
    let input = json!({ "command": pattern.replace('*', "x") });
    let rules = Permissions { allow: Some(vec![rule.clone()]), ..Permissions::default() };
    decide(Some(&rules), None, tool, &input) == ToolVerdict::Allow
}

/// Checks for allow rules of a schedule whose agent has `permissions` without allow rules.
fn check_schedule_allow(
    unused: &mut UnusedSettings,
    node: &Node,
    agent: &Agent,
    own: Option<&Permissions>,
    key: &KeyPath<'_>,
) {
    let (Some(own), Some(of_agent)) = (own, &agent.tools.permissions) else { return };
    let Some(written) = node.get("permissions").and_then(|permissions| permissions.entry("allow")) else {
        return;
    };
    let names_any =
        |permissions: &Permissions| permissions.allow.as_ref().is_some_and(|rules| !rules.is_empty());
    let message = "this has no effect: a schedule can only restrict the `permissions.allow` of its agent, and that list is empty";
    let is_unused = names_any(own) && !names_any(of_agent);
    unused.record(written.key_at, message, key("permissions.allow"), is_unused);
}

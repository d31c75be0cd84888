//! What is said about trust, held against itself and against what it is about.

use super::load::{Draft, Loader};
use super::node::{Location, Node};
use super::problem::{Problem, Severity};
use super::resolve::schedule_at;
use crate::roster::{Agent, Schedule};
use crate::trigger::TriggerConfig;
use crate::trust::Trust;

pub(super) fn check(loader: &mut Loader<'_>, draft: &Draft, agent: &Agent) {
    if let (Some(trust), Some(node)) = (&agent.settings.trust, draft.node.get("trust")) {
        check_one(loader, draft, (agent, None), trust, node.at);
    }
    for schedule in &agent.schedules {
        if let Some(trust) = &schedule.trust {
            let entries = draft.node.get("schedules").and_then(Node::entries);
            let node = entries.and_then(|entries| entries.get(schedule.name.as_str())?.node.get("trust"));
            let at = node.map_or_else(|| schedule_at(draft, schedule.name.as_str()), |node| node.at);
            check_one(loader, draft, (agent, Some(schedule)), trust, at);
        }
        unproven(loader, draft, agent, schedule);
    }
}

fn check_one(
    loader: &mut Loader<'_>,
    draft: &Draft,
    (agent, schedule): (&Agent, Option<&Schedule>),
    trust: &Trust,
    at: Location,
) {
    let key = schedule.map_or("trust".to_owned(), |schedule| format!("schedules.{}.trust", schedule.name));
    let asked = agent.sandbox(schedule.map(|schedule| &schedule.name), true);
    let message = if !trust.says_whom() {
        "say who is trusted, by `allow_authors` or `min_permission`, or what becomes of everybody, by `strangers`"
    } else if let (true, Some(message)) = (trust.confines(), asked.contradiction()) {
        message
    } else {
        return;
    };
    loader.problems.add(Problem::error(at, message).key(draft.key_of(&key)));
}

/// Names in deliveries that anybody can send prove nothing.
fn unproven(loader: &mut Loader<'_>, draft: &Draft, agent: &Agent, schedule: &Schedule) {
    let unsigned = matches!(schedule.trigger, TriggerConfig::Webhook { allow_unsigned: true, .. });
    if unsigned && !agent.trusts(Some(schedule)).is_empty() {
        let message = "with `allow_unsigned` nobody can be trusted: all its deliveries are a stranger's";
        let problem = Problem::error(schedule_at(draft, schedule.name.as_str()), message);
        let key = draft.key_of(&format!("schedules.{}.allow_unsigned", schedule.name));
        loader.problems.add(Problem { severity: Severity::Warning, ..problem.key(key) });
    }
}

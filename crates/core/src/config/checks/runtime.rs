//! Checks of an agent's keys against the features of its runtime.

use crate::config::load::{Draft, Loader};
use crate::config::node::Node;
use crate::config::problem::Problem;
use crate::roster::{Agent, Unenforceable};

/// Keys that the check needs. If one of them is wrong, the check is left out, because it could report errors that do
/// not exist.
pub(in crate::config) const NEEDED_KEYS: [&str; 2] = ["runtime", "command"];

pub(in crate::config) fn check(loader: &mut Loader<'_>, draft: &Draft, agent: &Agent) {
    let unenforceable = agent.unenforceable();
    check_unused(loader, draft, agent, &unenforceable);
    for Unenforceable { key, why } in &unenforceable {
        let found = key.split('.').try_fold(&draft.node, Node::get);
        let at = found.map_or(draft.entry, |node| node.at);
        if key.starts_with("mcp_servers") {
            // The problem is about a URL that may contain a secret.
            loader.problems.secret_at(at);
        }
        loader.problems.add(Problem::error(at, why.as_str()).key(draft.key_of(key)));
    }
    // A key that the agent itself cannot use is reported only once.
    let is_new = |found: &Unenforceable| unenforceable.iter().all(|known| known.key != found.key);
    for (number, agent) in agent.with_fallbacks().filter_map(|(number, agent)| Some((number?, agent))) {
        let at = draft.node.get("fallback").map_or(draft.entry, |node| node.at);
        for Unenforceable { why, .. } in agent.unenforceable().into_iter().filter(is_new) {
            loader.problems.add(Problem::error(at, why).key(draft.key_of(&format!("fallback[{number}]"))));
        }
    }
}

/// Checks `command`, which the runtimes without their own program (`command` and `acp`) require.
pub(in crate::config) fn check_command(loader: &mut Loader<'_>, draft: &Draft) {
    let runtime = draft.node.get("runtime");
    let name = runtime.and_then(Node::text).unwrap_or_default();
    let is_command = matches!(name, "command" | "acp");
    let problem = match (runtime, draft.node.get("command")) {
        (Some(runtime), None) if is_command => {
            let message = format!("`runtime: {name}` needs `command: [PROGRAM, ARGUMENT, …]`");
            Problem::error(runtime.at, message)
        }
        (_, Some(command)) if !is_command => {
            Problem::error(command.at, "`command` is only for `runtime: command` and `runtime: acp`")
        }
        _ => return,
    };
    loader.problems.add(problem.key(draft.key_of("command")));
}

/// Warns of keys that this runtime does not support. They are not errors, but have no effect. The keys in
/// `unenforceable` are left out, because they are reported as errors.
fn check_unused(loader: &mut Loader<'_>, draft: &Draft, agent: &Agent, unenforceable: &[Unenforceable]) {
    let runtime = agent.runtime();
    for (key, why) in runtime.unused() {
        let found = key.split('.').try_fold(&draft.node, Node::get).filter(|node| !node.is_null());
        let Some(found) = found.filter(|_| unenforceable.iter().all(|error| error.key != *key)) else {
            continue;
        };
        let message = format!("`{key}` has no effect for `runtime: {}`: {why}", runtime.name());
        loader.problems.add(Problem::warning(found.at, message).key(draft.key_of(key)));
    }
}

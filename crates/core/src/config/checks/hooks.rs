//! Checks of the addresses of hooks.

use crate::config::load::{Draft, Loader};
use crate::config::node::Node;
use crate::config::problem::{Problem, Severity};
use crate::hook::HookAction;
use crate::public_address::private_host_as_written;
use crate::roster::Agent;

/// Keys that the check needs.
pub(in crate::config) const NEEDED_KEYS: [&str; 1] = ["hooks"];

/// Reports webhook hooks that always fail, because their address is private as it is written. herdctl sends requests to
/// such addresses, so in its fleets this is only a warning.
pub(in crate::config) fn check(loader: &mut Loader<'_>, draft: &Draft, agent: &Agent) {
    for (list, hooks) in [("after_run", &agent.hooks.after_run), ("on_error", &agent.hooks.on_error)] {
        let nodes = draft.node.get("hooks").and_then(|hooks| hooks.get(list));
        let nodes = nodes.map(Node::list).unwrap_or_default();
        for (number, hook) in hooks.iter().enumerate() {
            let HookAction::Webhook { url, allow_private: false, .. } = &hook.action else { continue };
            let Some(host) = private_host_as_written(url) else { continue };
            let at = nodes.get(number).and_then(|hook| hook.get("url")).map_or(draft.entry, |node| node.at);
            let severity = if draft.herdctl { Severity::Warning } else { Severity::Error };
            let message = format!("this hook always fails: {host} is not a public address");
            let problem =
                Problem::error(at, message).key(draft.key_of(&format!("hooks.{list}[{number}].url")));
            let help = "`allow_private: true` lets this hook reach it".to_owned();
            loader.problems.add(Problem { severity, ..problem.help(help) });
        }
    }
}

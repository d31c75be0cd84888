//! Checks for secrets in names, paths and arguments, which other users of the machine can see.

use crate::config::load::{Draft, Loader};
use crate::config::node::{Node, Value};
use crate::config::problem::Problem;
use crate::config::secret::looks_secret;

/// Checks the values of an agent before they get their types. Until then, each value records the variables in it.
pub(in crate::config) fn check(loader: &mut Loader<'_>, draft: &Draft) {
    let mut visible = VisibleSecrets { loader, draft };
    visible.look_in(draft.node.get("command"), || "command".to_owned());
    visible.look_in_commands_and_paths(&draft.node, String::new);
    for (name, server) in draft.node.get("mcp_servers").and_then(Node::entries).into_iter().flatten() {
        visible.look_in(server.node.get("args"), || format!("mcp_servers.{name}.args"));
    }
    for (name, schedule) in draft.node.get("schedules").and_then(Node::entries).into_iter().flatten() {
        visible.look_in_commands_and_paths(&schedule.node, || format!("schedules.{name}."));
    }
    for list in ["after_run", "on_error"] {
        let hooks =
            draft.node.get("hooks").and_then(|hooks| hooks.get(list)).map(Node::list).unwrap_or_default();
        for (number, hook) in hooks.iter().enumerate() {
            visible.look_in(hook.get("command"), || format!("hooks.{list}[{number}].command"));
        }
    }
}

/// The check of one agent. The path of a key is made only if its value contains a secret.
struct VisibleSecrets<'a, 'l> {
    loader: &'a mut Loader<'l>,
    draft: &'a Draft,
}

impl VisibleSecrets<'_, '_> {
    fn look_in_commands_and_paths(&mut self, owner: &Node, below: impl Fn() -> String) {
        for path in [
            ["name"].as_slice(),
            &["working_directory"],
            &["when_command"],
            &["work_source", "path"],
            &["isolation", "setup"],
            &["isolation", "branch"],
        ] {
            let node = path.iter().try_fold(owner, |node, key| node.get(key));
            self.look_in(node, || format!("{}{}", below(), path.join(".")));
        }
    }

    fn look_in(&mut self, node: Option<&Node>, key: impl Fn() -> String) {
        let Some((written, variable)) = node.and_then(secret_in) else { return };
        let message = format!(
            "the value of `{variable}` becomes a part of a file name or an argument here, which other users of the \
             machine can see, for example with `ps`"
        );
        let help = format!("pass it with `env`, and let the program read `{variable}`");
        let problem = Problem::warning(written.at, message).key(self.draft.key_of(&key()));
        self.loader.problems.add(problem.help(help));
    }
}

/// Returns the first value that contains a secret, and the variable of the secret.
fn secret_in(node: &Node) -> Option<(&Node, &str)> {
    match &node.value {
        Value::Scalar(scalar) => {
            let variable = scalar.variables.iter().find(|variable| looks_secret(variable))?;
            Some((node, variable))
        }
        Value::List(items) => items.iter().find_map(secret_in),
        Value::Map(map) => map.entries.values().find_map(|entry| secret_in(&entry.node)),
    }
}

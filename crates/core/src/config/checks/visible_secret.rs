//! Checks for secrets in names, paths and arguments, which other users of the machine can see.

use crate::config::load::{Draft, Loader};
use crate::config::node::{Node, Value};
use crate::config::problem::Problem;
use crate::config::secret::looks_secret;

/// Checks the values of an agent before they are typed, because they still record the variables that they contain.
pub(in crate::config) fn check(loader: &mut Loader<'_>, draft: &Draft) {
    let mut visible = vec![("command".to_owned(), draft.node.get("command"))];
    add_commands_and_paths(&mut visible, &draft.node, "");
    for (name, server) in draft.node.get("mcp_servers").and_then(Node::entries).into_iter().flatten() {
        visible.push((format!("mcp_servers.{name}.args"), server.node.get("args")));
    }
    for (name, schedule) in draft.node.get("schedules").and_then(Node::entries).into_iter().flatten() {
        add_commands_and_paths(&mut visible, &schedule.node, &format!("schedules.{name}."));
    }
    for list in ["after_run", "on_error"] {
        let hooks =
            draft.node.get("hooks").and_then(|hooks| hooks.get(list)).map(Node::list).unwrap_or_default();
        for (number, hook) in hooks.iter().enumerate() {
            visible.push((format!("hooks.{list}[{number}].command"), hook.get("command")));
        }
    }
    for (key, node) in visible.into_iter().filter_map(|(key, node)| Some((key, node?))) {
        if let Some((written, variable)) = secret_in(node) {
            let message = format!(
                "the value of `{variable}` becomes a part of a file name or an argument here, which other users of the \
                 machine can see, for example with `ps`"
            );
            let help = format!("pass it with `env`, and let the program read `{variable}`");
            loader.problems.add(Problem::warning(written.at, message).key(draft.key_of(&key)).help(help));
        }
    }
}

fn add_commands_and_paths<'a>(visible: &mut Vec<(String, Option<&'a Node>)>, owner: &'a Node, below: &str) {
    for path in [
        ["name"].as_slice(),
        &["working_directory"],
        &["when_command"],
        &["work_source", "path"],
        &["isolation", "setup"],
        &["isolation", "branch"],
    ] {
        let node = path.iter().try_fold(owner, |node, key| node.get(key));
        visible.push((format!("{below}{}", path.join(".")), node));
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

//! Commands that texts advise.

use std::collections::BTreeSet;

use super::{name_of, told};
use crate::Scene;

/// Checks that every advised command can be run, and does what the text says.
pub(super) fn follow(scene: &Scene) {
    let advised = collect(scene);
    for expected in [
        "schedule enable broken/fails",
        "unpark shared",
        "asks",
        "config check",
        "doctor",
        "work retry files-third --agent unlucky",
        "trigger unlucky hard",
    ] {
        assert!(advised.contains(expected), "{expected} in {advised:?}");
    }
    // Triggers run last, because the advice to retry an item names a trigger that takes the item afterwards.
    let (triggers, others): (Vec<&String>, Vec<&String>) =
        advised.iter().partition(|command| command.starts_with("trigger "));
    for command in others.into_iter().chain(triggers) {
        let arguments: Vec<&str> = command.split_whitespace().collect();
        let (code, out, said) = scene.run(&arguments);
        // Both verbs report the mistake in the config on disk.
        let expected = if ["config check", "doctor"].contains(&command.as_str()) { 3 } else { 0 };
        assert_eq!(code, expected, "cowhand {command}: {out}{said}");
        match arguments.as_slice() {
            ["schedule", "enable", name] => {
                let status = told(scene, &["schedule", "show", name])["status"].clone();
                assert_ne!(status, "disabled", "{name} is on");
            }
            // The job may meet the limit again at once.
            ["unpark", _] => {
                let (_, events, _) = scene.run(&["events", "--limit", "1000"]);
                assert!(events.contains("provider:unparked"), "{events}");
            }
            _ => {}
        }
    }
}

/// Collects the commands from all texts about the state of the fleet.
fn collect(scene: &Scene) -> BTreeSet<String> {
    let verbs: [&[&str]; 4] = [&["status"], &["schedule", "list"], &["asks"], &["work", "list", "--all"]];
    let mut texts: Vec<String> = verbs.iter().map(|verb| scene.run(verb).1).collect();
    for view in told(scene, &["schedule", "list"]).as_array().unwrap() {
        let name = name_of(view);
        texts.push(scene.run(&["why", &name]).1);
        texts.push(scene.run(&["schedule", "next", &name]).1);
    }
    for job in told(scene, &["jobs", "--limit", "100"]).as_array().unwrap() {
        texts.push(scene.run(&["job", job["id"].as_str().unwrap()]).1);
    }
    texts.iter().flat_map(|text| commands(text)).collect()
}

/// Returns the commands in backticks that begin with the name of the program, without those that have a
/// placeholder.
fn commands(text: &str) -> Vec<String> {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let quoted = text.split('`').skip(1).step_by(2);
    let commands = quoted.filter_map(|quoted| quoted.strip_prefix("cowhand "));
    commands
        .filter(|command| {
            !command.split(' ').any(|word| word.len() > 1 && word.chars().all(char::is_uppercase))
        })
        .map(ToOwned::to_owned)
        .collect()
}

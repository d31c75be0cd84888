//! A mistake neither hides another mistake nor causes a false one, and each problem names its key.

use super::{lines, load_text, rendered};

/// An error about one key does not make another key look harmless.
#[test]
fn every_key_that_a_runtime_cannot_enforce_is_an_error() {
    let text = "agents:\n  - {name: a, runtime: command, command: [x], tools: [Bash], permission_mode: plan}\n  \
                - {name: b, runtime: codex, denied_tools: [Bash], permission_mode: ask, fallback: [{runtime: gemini}]}\n";
    let loaded = load_text(text);
    let found = lines(&loaded);
    for (key, message) in [
        ("agents[0].tools", "`runtime: command` cannot enforce `tools`"),
        ("agents[0].permission_mode", "`runtime: command` cannot enforce `permission_mode`"),
        ("agents[1].denied_tools", "`runtime: codex` cannot enforce `denied_tools`"),
        ("agents[1].permission_mode", "`runtime: codex` does not"),
    ] {
        let found = loaded.problems.iter().find(|problem| problem.key == key);
        assert!(
            found.is_some_and(|problem| problem.message.contains(message)),
            "{key}: {:?}",
            lines(&loaded)
        );
    }
    assert_eq!((loaded.errors(), found.len()), (4, 4), "{found:?}");
}

/// The variables of a misspelt type are not known, so the prompt is not checked.
#[test]
fn misspelt_type_is_the_only_mistake() {
    let text = "agents:\n  - name: a\n    schedules: {s: {type: manul, prompt: '{{ issue }}'}}\n";
    let found = lines(&load_text(text));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("manul"), "{found:?}");
}

/// The line is not shown, but its key is.
#[test]
fn problems_on_lines_with_secrets_name_their_keys() {
    let loaded = load_text("store: 'mysql://me:canary@host/db'\nagents: [{name: a}]\n");
    let text = rendered(&loaded);
    assert!(text.contains("--> cowhand.yaml:1:8\n  = key: store\n"), "{text}");
    assert!(!text.contains("canary"), "{text}");
}

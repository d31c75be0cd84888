//! Properties that hold for every text and every tree.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use cowhand_core::config::editor::fleet_schema;
use cowhand_core::config::interpolate::expand;
use cowhand_core::config::merge::merge;
use cowhand_core::config::node::{Entry, FileId, Location, Map, Node, Scalar, Sources, Value};
use proptest::prelude::*;
use serde_json::Value as Json;

use super::{load_files, rendered};

fn nowhere() -> Location {
    fn file() -> FileId {
        Sources::default().add("x".into(), String::new())
    }
    Location::whole(file())
}

fn trees() -> impl Strategy<Value = Node> {
    let node = |value| Node { value, at: nowhere() };
    let word = prop_oneof!["[a-c]", Just("~".to_owned())];
    let scalar = (word, any::<bool>()).prop_map(move |(text, is_short)| {
        let short_for = (is_short && text != "~").then_some("a");
        node(Value::Scalar(Scalar { text, plain: true, short_for, ..Scalar::default() }))
    });
    scalar.prop_recursive(4, 32, 4, move |inner| {
        let map = prop::collection::vec(("[a-d]", inner.clone()), 0..4).prop_map(move |pairs| {
            let entries =
                pairs.into_iter().map(|(key, node)| (key, Entry { key_at: nowhere(), node })).collect();
            node(Value::Map(Map { entries, replaces_all: false }))
        });
        prop_oneof![prop::collection::vec(inner, 0..3).prop_map(move |items| node(Value::List(items))), map]
    })
}

/// Generates texts that look like a config and may contain every kind of mistake.
fn yaml_like() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "agents",
        "name",
        "schedules",
        "type",
        "cron",
        "interval",
        "5m",
        "defaults",
        "fleets",
        "path",
        "overrides",
        "work_source",
        "github",
        "a.yaml",
        "cowhand.yaml",
        "hooks",
        "docker",
        "env",
        "true",
        "12",
        "~",
        "${X}",
        "${Y:-z}",
        "$${",
        "&a",
        "*a",
        "<<",
        "!!str",
        "@daily",
        "'",
        "\"",
        "é",
        "|",
        ">-",
        "#",
        "---",
        "%YAML",
        "\t",
    ]);
    let glue = prop::sample::select(vec![
        ": ", ":\n  ", "\n", "\n  ", "\n    ", "\n- ", "\n  - ", ", ", "{", "}", "[", "]", " ",
    ]);
    prop::collection::vec((word, glue), 0..40)
        .prop_map(|parts| parts.into_iter().flat_map(|(word, glue)| [word, glue]).collect())
}

/// Collects every key of the schema.
fn keys_of(schema: &Json, keys: &mut BTreeSet<String>) {
    match schema {
        Json::Object(map) => {
            let properties = map.get("properties").and_then(Json::as_object);
            keys.extend(properties.into_iter().flat_map(|properties| properties.keys().cloned()));
            map.values().for_each(|below| keys_of(below, keys));
        }
        Json::Array(items) => items.iter().for_each(|below| keys_of(below, keys)),
        _ => {}
    }
}

/// Generates trees of config keys. Each tree is valid YAML; as a config, it may be correct or contain any mistake.
fn configs() -> impl Strategy<Value = String> {
    let mut keys = BTreeSet::new();
    keys_of(&fleet_schema(), &mut keys);
    let keys: Vec<String> = keys.into_iter().collect();
    let word = prop::sample::select(vec![
        "5m",
        "@daily",
        "UTC",
        "a",
        "b",
        "a/s",
        "s",
        "true",
        "0",
        "7",
        "-1",
        "1.5",
        "null",
        "cron",
        "interval",
        "webhook",
        "delay",
        "manual",
        "dispatch_result",
        "agent_lifecycle",
        "github",
        "github_issues",
        "shell",
        "2026-01-01",
        "2026-01-01T00:00:00Z",
        "09:00",
        "mon",
        "o/r",
        "https://u:p@h",
        "a.yaml",
        "open",
        "${X}",
        "local",
        "completed",
        "session_end",
        "skip",
        "3f2504e0-4f89-41d3-9a0c-0305e82c3301",
        "bridge",
        "http",
        "2g",
        "",
    ]);
    // Words without quotes, so that they are typed; `~` instead of an empty plain scalar.
    let scalar = word.prop_map(|word| if word.is_empty() { "~".to_owned() } else { word.to_owned() });
    let scalar = scalar.prop_map(|word| if word.contains('{') { format!("'{word}'") } else { word });
    let key = prop_oneof![prop::sample::select(keys), "[a-z]{1,3}"];
    let tree = scalar.prop_recursive(5, 48, 5, move |inner| {
        let list =
            prop::collection::vec(inner.clone(), 0..3).prop_map(|items| format!("[{}]", items.join(", ")));
        let map = prop::collection::btree_map(key.clone(), inner, 0..6).prop_map(|map| {
            let pairs: Vec<String> = map.iter().map(|(key, value)| format!("{key}: {value}")).collect();
            format!("{{{}}}", pairs.join(", "))
        });
        prop_oneof![1 => list, 4 => map]
    });
    (prop::collection::vec(tree.clone(), 0..4), prop::collection::vec((0..4_usize, tree), 0..4)).prop_map(
        |(agents, schedules)| {
            let mut text = String::from("agents:\n");
            for (number, agent) in agents.iter().enumerate() {
                write!(
                    text,
                    "  - name: a{number}\n    overrides: {agent}\n    schedules:\n      s: {{type: manual}}\n"
                )
                .unwrap();
                for (place, (_, schedule)) in
                    schedules.iter().enumerate().filter(|(_, (of, _))| *of == number)
                {
                    writeln!(text, "      s{place}: {schedule}").unwrap();
                }
            }
            text
        },
    )
}

fn answers(text: &str) {
    let files = [("cowhand.yaml", text), ("a.yaml", text), ("herdctl.yaml", text)];
    for root in 0..files.len() {
        let mut files = files;
        files.swap(0, root);
        let loaded = load_files(&files, &[("X", "x: [${X}")]);
        assert!(!rendered(&loaded).is_empty());
        let ours = loaded.problems.iter().find(|problem| problem.message.contains("passes the schema"));
        assert!(ours.is_none(), "{text}");
    }
}

proptest! {
    #[test]
    fn merging_is_associative(a in trees(), b in trees(), c in trees()) {
        let left = merge(merge(a.clone(), b.clone()), c.clone());
        prop_assert_eq!(left, merge(a, merge(b, c)));
    }

    #[test]
    fn merging_with_an_empty_map_changes_nothing(a in trees()) {
        let nothing = Node::empty_map(nowhere());
        if a.entries().is_some() {
            prop_assert_eq!(merge(a.clone(), nothing.clone()), a.clone());
            prop_assert_eq!(merge(nothing, a.clone()), a);
        }
    }

    /// The value of a variable stays unchanged, whatever it contains.
    #[test]
    fn values_are_never_expanded_again(before in "[a-z ]*", value in "(\\$|\\{|\\}|A|B|:-|[a-z])*", after in "[a-z ]*") {
        let env = |name: &str| (name == "A").then(|| value.clone());
        let text = format!("{before}${{A}}{after}");
        let expanded = expand(&text, &env);
        prop_assert_eq!(&expanded.text, &format!("{before}{value}{after}"));
        prop_assert_eq!(expanded.used, ["A"]);
        prop_assert!(expanded.undefined.is_empty() && expanded.literal.is_empty());
    }

    /// Any text can be escaped so that it stays unchanged.
    #[test]
    fn every_text_can_be_escaped(text in "([a-z]|\\{|\\}|A| |:-)*(\\$\\{A\\}|[a-z])*") {
        let escaped = text.replace("${", "$${");
        prop_assert_eq!(expand(&escaped, &|_| None).text, text);
    }

    #[test]
    fn loading_any_text_gives_a_report(text in any::<String>()) {
        answers(&text);
    }

    #[test]
    fn loading_any_config_gives_a_report(text in configs()) {
        answers(&text);
    }

    #[test]
    fn loading_any_yaml_like_text_gives_a_report(text in yaml_like()) {
        answers(&text);
    }
}

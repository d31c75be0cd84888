//! What holds for every text and every tree.

use cowhand_core::config::interpolate::expand;
use cowhand_core::config::merge::merge;
use cowhand_core::config::node::{Entry, FileId, Location, Map, Node, Scalar, Sources, Value};
use proptest::prelude::*;

use super::{load_files, rendered};

fn nowhere() -> Location {
    fn file() -> FileId {
        Sources::default().add("x".into(), String::new())
    }
    Location::whole(file())
}

fn trees() -> impl Strategy<Value = Node> {
    let node = |value| Node { value, at: nowhere() };
    let scalar = prop_oneof!["[a-c]", Just("~".to_owned())]
        .prop_map(move |text| node(Value::Scalar(Scalar { text, plain: true, ..Scalar::default() })));
    scalar.prop_recursive(4, 32, 4, move |inner| {
        let map = prop::collection::vec(("[a-d]", inner.clone()), 0..4).prop_map(move |pairs| {
            let entries =
                pairs.into_iter().map(|(key, node)| (key, Entry { key_at: nowhere(), node })).collect();
            node(Value::Map(Map { entries, replaces: false }))
        });
        prop_oneof![prop::collection::vec(inner, 0..3).prop_map(move |items| node(Value::List(items))), map]
    })
}

/// Texts that look like the config, with everything that can go wrong inside.
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

fn answers(text: &str) {
    let files = [("cowhand.yaml", text), ("a.yaml", text), ("herdctl.yaml", text)];
    for root in 0..files.len() {
        let mut files = files;
        files.swap(0, root);
        let loaded = load_files(&files, &[("X", "x: [${X}")]);
        assert!(!rendered(&loaded).is_empty());
        assert!(loaded.errors() > 0 || loaded.problems.iter().all(|problem| !problem.message.is_empty()));
    }
}

proptest! {
    #[test]
    fn merging_is_associative(a in trees(), b in trees(), c in trees()) {
        let left = merge(merge(a.clone(), b.clone()), c.clone());
        prop_assert_eq!(left, merge(a, merge(b, c)));
    }

    #[test]
    fn nothing_over_something_is_something(a in trees()) {
        let nothing = Node::empty_map(nowhere());
        if a.entries().is_some() {
            prop_assert_eq!(merge(a.clone(), nothing.clone()), a.clone());
            prop_assert_eq!(merge(nothing, a.clone()), a);
        }
    }

    /// What a variable brings in comes out as it is, whatever it looks like.
    #[test]
    fn values_are_never_expanded_again(before in "[a-z ]*", value in "(\\$|\\{|\\}|A|B|:-|[a-z])*", after in "[a-z ]*") {
        let env = |name: &str| (name == "A").then(|| value.clone());
        let text = format!("{before}${{A}}{after}");
        let expanded = expand(&text, &env);
        prop_assert_eq!(&expanded.text, &format!("{before}{value}{after}"));
        prop_assert_eq!(expanded.used, ["A"]);
        prop_assert!(expanded.undefined.is_empty() && expanded.literal.is_empty());
    }

    /// Any text can be written so that it comes out as it is.
    #[test]
    fn every_text_can_be_escaped(text in "([a-z]|\\{|\\}|A| |:-)*(\\$\\{A\\}|[a-z])*") {
        let escaped = text.replace("${", "$${");
        prop_assert_eq!(expand(&escaped, &|_| None).text, text);
    }

    #[test]
    fn any_text_gets_an_answer(text in any::<String>()) {
        answers(&text);
    }

    #[test]
    fn any_yaml_like_text_gets_an_answer(text in yaml_like()) {
        answers(&text);
    }
}

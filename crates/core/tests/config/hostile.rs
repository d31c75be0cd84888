//! Hostile files are rejected with a clear message.

use std::fmt::Write as _;

use super::{lines, load_files, load_text};

#[track_caller]
fn refused(text: &str, message: &str) {
    let found = lines(&load_text(text));
    assert!(found.len() == 1 && found[0].contains(message), "{found:?}");
}

#[test]
fn alias_bombs_are_refused() {
    let mut laughs = String::from("a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]\n");
    for level in 1..12 {
        let below = format!("*a{}", level - 1);
        writeln!(laughs, "a{level}: &a{level} [{}]", vec![below; 10].join(", ")).unwrap();
    }
    refused(&laughs, "the aliases of this file add more than 200000 values");

    let mut merges = String::from("a0: &a0 {x: y}\n");
    for level in 1..40 {
        writeln!(merges, "a{level}: &a{level} {{l: *a{0}, r: *a{0}}}", level - 1).unwrap();
    }
    refused(&merges, "the aliases of this file add more than 200000 values");
    refused("a: &a [*a]", "inside its own anchor");
    // A larger file may have more aliased values, in proportion to its size.
    let padded = format!("{laughs}# {}", "#".repeat(2_000_000));
    let limit = padded.len() / 4;
    refused(&padded, &format!("the aliases of this file add more than {limit} values"));
}

/// Aliases add more values than a small file may have, but not many in proportion to the size of this file.
#[test]
fn many_aliases_in_a_large_file_are_accepted() {
    let variables: Vec<String> = (0..110).map(|number| format!("V{number}: x")).collect();
    let mut text =
        format!("agents:\n  - {{name: a, default_prompt: Go., env: &env {{{}}}}}\n", variables.join(", "));
    for number in 1..2_000 {
        let prompt = "Look. ".repeat(100);
        writeln!(text, "  - {{name: a{number}, default_prompt: {prompt}, env: *env}}").unwrap();
    }
    let loaded = load_text(&text);
    assert_eq!((loaded.problems.len(), loaded.roster.agents.len()), (0, 2_000));
    let env: usize = loaded.roster.agents.iter().map(|agent| agent.program.env.len()).sum();
    assert_eq!(env, 220_000);
}

#[test]
fn deep_nesting_is_refused() {
    for text in ["[".repeat(200_000), "{a: ".repeat(50_000), "- ".repeat(100_000), "? ".repeat(100_000)] {
        refused(&text, "nested more than 64 levels deep");
    }
    let mut stairs = String::from("a0: &a0 [x]\n");
    for level in 1..100 {
        writeln!(stairs, "a{level}: &a{level} [*a{}]", level - 1).unwrap();
    }
    refused(&stairs, "nested more than 64 levels deep");
}

/// The size of a file and the number of its values are not limited.
#[test]
fn large_files_without_aliases_are_accepted() {
    let names: Vec<String> = (0..300_000).map(|number| format!("V{number}")).collect();
    let wide = format!("agents: [{{name: a, default_prompt: Go., pass_env: [{}]}}]", names.join(","));
    let loaded = load_text(&wide);
    assert_eq!(loaded.errors(), 0, "{:?}", loaded.problems.first());
    assert_eq!(loaded.roster.agents[0].pass_env.len(), 300_000);
    let comment = format!("{}\nagents: [{{name: a, default_prompt: Go.}}]", "#".repeat(5 << 20));
    assert_eq!(load_text(&comment).roster.agents.len(), 1);
    let long = format!("agents: [{{name: {}}}]", "n".repeat(1 << 20));
    assert_eq!(load_text(&long).errors(), 1);
}

#[test]
fn a_hundred_thousand_schedules_are_loaded() {
    let mut text = String::from("defaults: {timeout: 10m}\nagents:\n");
    for agent in 0..10_000 {
        writeln!(text, "  - name: agent-{agent}\n    schedules:").unwrap();
        for number in 0..10 {
            writeln!(text, "      s{number}: {{type: manual, prompt: Look after part {number}.}}").unwrap();
        }
    }
    let loaded = load_text(&text);
    let schedules: usize = loaded.roster.agents.iter().map(|agent| agent.schedules.len()).sum();
    assert_eq!((loaded.problems.len(), schedules), (0, 100_000), "{:?}", loaded.problems.first());
}

/// Small files that become large when merged: each agent takes a copy of the defaults.
#[test]
fn defaults_that_expand_too_much_are_refused() {
    let servers: Vec<String> = (0..5_000).map(|n| format!("s{n}: {{command: c}}")).collect();
    let agents: Vec<String> = (0..5_000).map(|n| format!("{{name: a{n}}}")).collect();
    let (servers, agents) = (servers.join(", "), agents.join(", "));
    let found = lines(&load_text(&format!("defaults: {{mcp_servers: {{{servers}}}}}\nagents: [{agents}]")));
    assert!(found.iter().any(|line| line.contains("once the defaults are merged in")), "{found:?}");
}

/// Files whose check would take very long if every name were compared with every other name, or if the search for each
/// position began at the start of the file.
#[test]
fn files_with_many_mistakes_are_checked_to_the_end() {
    let schedules: Vec<String> =
        (0..3_000).map(|n| format!("      s{n}: {{type: dispatch_result, schedule: x/{n}}}")).collect();
    let loaded = load_text(&format!("agents:\n  - name: a\n    schedules:\n{}", schedules.join("\n")));
    assert_eq!(loaded.errors(), 3_000);
    let agents: Vec<String> = (0..3_000).map(|n| format!("{{name: a{n}, modle: ${n}}}")).collect();
    assert_eq!(load_text(&format!("agents: [{}]", agents.join(", "))).errors(), 3_000);
    let variables = format!("fleet:\n  description: |\n    {}", "${NOBODY} ${".repeat(100_000));
    assert_eq!(load_text(&variables).errors(), 20);
}

/// Thirty files, each naming the next one ten times.
#[test]
fn too_many_fleets_are_refused() {
    let names: Vec<String> = (0..30).map(|level| format!("{level}/c.yaml")).collect();
    let text = |level: usize| {
        let next = (0..10).map(|n| format!("{{path: ../{level}/c.yaml, name: f{n}}}"));
        format!(
            "fleets: [{}]\nagents: [{{name: a, default_prompt: Go.}}]",
            next.collect::<Vec<_>>().join(", ")
        )
    };
    let texts: Vec<String> =
        (1..30).map(text).chain(["agents: [{name: a, default_prompt: Go.}]".to_owned()]).collect();
    let files: Vec<(&str, &str)> =
        names.iter().map(String::as_str).zip(texts.iter().map(String::as_str)).collect();
    let found = lines(&load_files(&files, &[]));
    assert!(found.len() == 1 && found[0].ends_with("there are more than 1000 fleets"), "{found:?}");
}

#[test]
fn too_deeply_nested_fleets_are_refused() {
    let names: Vec<String> = (0..40).map(|level| format!("{level}/c.yaml")).collect();
    let texts: Vec<String> =
        (1..=40).map(|level| format!("fleets: [{{path: ../{level}/c.yaml, name: f}}]")).collect();
    let files: Vec<(&str, &str)> =
        names.iter().map(String::as_str).zip(texts.iter().map(String::as_str)).collect();
    assert_eq!(
        lines(&load_files(&files, &[])),
        ["31/c.yaml:1:17 fleets are nested more than 32 levels deep"]
    );
}

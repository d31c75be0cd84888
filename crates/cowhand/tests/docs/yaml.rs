//! Each YAML block is checked by `cowhand config check`, as a whole config or at its place in one.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use super::markdown::{Block, Page};
use super::program::Program;

/// The keys that the program accepts at the places where a fragment can stand.
pub struct Keys {
    root: BTreeSet<String>,
    agent: BTreeSet<String>,
    schedule: BTreeSet<String>,
}

impl Keys {
    pub fn of(program: &Program) -> Self {
        let printed = program.run(&["config", "schema"], &[]).stdout;
        let schema: Value = serde_json::from_str(&printed).unwrap();
        let of = |name: &str| properties(&schema["$defs"][name]);
        Self { root: properties(&schema), agent: of("PartialAgent"), schedule: of("PartialSchedule") }
    }

    /// Returns a whole config with the fragment at the place that its keys show, if there is one.
    fn place(&self, text: &str) -> Option<String> {
        let keys = top_keys(text);
        let all_of = |known: &BTreeSet<String>, keys: &[String]| keys.iter().all(|key| known.contains(key));
        if all_of(&self.root, &keys) {
            let agents = if keys.iter().any(|key| key == "agents") { "" } else { "agents: []\n" };
            return Some(format!("{text}{agents}"));
        }
        if all_of(&self.agent, &keys) {
            let name = if keys.iter().any(|key| key == "name") { "" } else { " name: coder" };
            return Some(format!("agents:\n  -{name}\n{}", indented(text, 4)));
        }
        let schedules = "agents:\n  - name: coder\n    schedules:\n";
        if all_of(&self.schedule, &keys) {
            return Some(format!("{schedules}      nightly:\n{}", indented(text, 8)));
        }
        let second = second_keys(text);
        let named = !second.is_empty() && all_of(&self.schedule, &second);
        named.then(|| format!("{schedules}{}", indented(text, 6)))
    }
}

/// Checks the YAML blocks of the page and returns how many there are.
pub fn check(page: &Page, keys: &Keys, problems: &mut Vec<String>) -> usize {
    let blocks = page.blocks.iter().filter(|block| block.language == "yaml");
    let blocks = blocks.filter(|block| block.marker.as_deref() != Some("not-config"));
    let check = |block: &Block| {
        if let Err(problem) = check_block(block, keys) {
            problems.push(format!("{}:{}: {problem}", page.name, block.line));
        }
    };
    blocks.map(check).count()
}

fn check_block(block: &Block, keys: &Keys) -> Result<(), String> {
    let config = keys.place(&block.text).ok_or(
        "the block is no fleet, and no keys of an agent or of a schedule, and no schedules with names; \
         `<!-- docs-test: not-config -->` above it marks other YAML",
    )?;
    let program = Program::new();
    let at = |name: &str| program.folder.path().join(name);
    fs::write(at("cowhand.yaml"), &config).unwrap();
    for path in values_of(&config, "path:").chain(values_of(&config, "- path:")) {
        let file = at(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        match path.rsplit_once('/') {
            Some((_, "cowhand.yaml")) => fs::write(file, "agents: []\n").unwrap(),
            Some((_, name)) if name.ends_with(".yaml") => fs::write(file, "name: other\n").unwrap(),
            _ => fs::create_dir_all(file).unwrap(),
        }
    }
    let answer = program.run(&["config", "check"], &variables(&config));
    match (block.marker.as_deref(), answer.code) {
        (Some("refused"), Some(3)) | (None, Some(0)) => Ok(()),
        (Some("refused"), _) => Err("the block is accepted, and its marker says `refused`".to_owned()),
        _ => Err(format!("{}{}", answer.stdout, answer.stderr)),
    }
}

/// Returns a value for each variable `${NAME}` that the config uses.
fn variables(config: &str) -> Vec<(String, String)> {
    let names = config.split("${").skip(1).filter_map(|rest| rest.split(['}', ':']).next());
    names.map(|name| (name.to_owned(), "value".to_owned())).collect()
}

fn values_of<'a>(config: &'a str, key: &'a str) -> impl Iterator<Item = &'a str> {
    config.lines().filter_map(move |line| line.trim().strip_prefix(key)).map(str::trim)
}

/// Returns the names of all properties of an object in the schema, of all its variants.
fn properties(schema: &Value) -> BTreeSet<String> {
    let variants = schema["anyOf"].as_array().into_iter().flatten();
    let objects = variants.chain([schema]).filter_map(|variant| variant["properties"].as_object());
    objects.flat_map(|object| object.keys().cloned()).collect()
}

/// Returns the keys in the first column.
fn top_keys(text: &str) -> Vec<String> {
    let key = |line: &str| line.split_once(':').map(|(key, _)| key.to_owned());
    text.lines().filter(|line| !line.starts_with([' ', '#', '-'])).filter_map(key).collect()
}

/// Returns the keys one level below, where that level is indented by two.
fn second_keys(text: &str) -> Vec<String> {
    let below: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("  ")).collect();
    top_keys(&below.join("\n"))
}

fn indented(text: &str, depth: usize) -> String {
    text.lines().map(|line| format!("{:depth$}{line}\n", "")).collect()
}

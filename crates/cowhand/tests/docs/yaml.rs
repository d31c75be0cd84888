//! Each YAML block is checked by `cowhand config check`, as a whole config or at its place in one.

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Map, Value};

use super::markdown::{Block, Page};
use super::program::Program;

const AGENT: &str = "agents:\n  - name: coder\n";
const SCHEDULES: &str = "agents:\n  - name: coder\n    schedules:\n";
const HOOKS: &str = "agents:\n  - name: coder\n    hooks:\n      after_run:\n";

/// Place in a config for a fragment.
struct Place {
    /// The keys that the program accepts there.
    keys: BTreeSet<String>,
    /// The lines above the fragment.
    above: String,
    depth: usize,
}

/// Places for a map, for a list, and for schedules with their names. The first place that fits is used.
pub(super) struct Places {
    maps: Vec<Place>,
    lists: Vec<Place>,
    schedules: Place,
}

impl Places {
    pub(super) fn of(program: &Program) -> Self {
        let printed = program.run(&["config", "schema"], &[]).stdout;
        let schema: Value = serde_json::from_str(&printed).unwrap();
        let place = |name: &str, above: &str, depth: usize| {
            let keys = properties(if name.is_empty() { &schema } else { &schema["$defs"][name] });
            assert!(!keys.is_empty(), "the schema has no keys of {name}");
            Place { keys, above: above.to_owned(), depth }
        };
        let maps = vec![
            place("", "", 0),
            place("PartialAgent", AGENT, 4),
            place("PartialSchedule", &format!("{SCHEDULES}      nightly:\n"), 8),
            place("PartialDefaults", "agents: []\ndefaults:\n", 2),
            place("PartialServer", "agents: []\nserver:\n", 2),
            place("PartialWorkSource", &format!("{AGENT}    work_source:\n"), 6),
            place("PartialHook", &format!("{HOOKS}        -\n"), 10),
        ];
        let lists = vec![place("PartialAgentEntry", "agents:\n", 2), place("PartialHook", HOOKS, 8)];
        Self { maps, lists, schedules: place("PartialSchedule", SCHEDULES, 6) }
    }

    /// Returns a whole config with the fragment at the place that has its keys, if there is one.
    fn place(&self, text: &str) -> Option<String> {
        let (places, keys) = if text.starts_with("- ") {
            (
                &self.lists,
                top_keys(&without_indentation(&text.replace("\n- ", "\n  ").replacen("- ", "  ", 1))),
            )
        } else {
            (&self.maps, top_keys(text))
        };
        let Some(place) = places.iter().find(|place| place.has(&keys)) else {
            let below = top_keys(&without_indentation(text));
            return (!below.is_empty() && self.schedules.has(&below)).then(|| self.schedules.with(text));
        };
        let has = |name: &str| keys.iter().any(|key| key == name);
        let config = place.with(text);
        if place.depth == 0 && !has("agents") {
            return Some(format!("{config}agents: []\n"));
        }
        let named = place.above == AGENT && has("name");
        Some(if named { config.replacen(" name: coder", "", 1) } else { config })
    }
}

impl Place {
    fn has(&self, keys: &[String]) -> bool {
        keys.iter().all(|key| self.keys.contains(key))
    }

    fn with(&self, text: &str) -> String {
        let depth = self.depth;
        let lines: Vec<String> = text.lines().map(|line| format!("{:depth$}{line}\n", "")).collect();
        format!("{}{}", self.above, lines.concat())
    }
}

/// Checks the YAML blocks of the page and returns how many there are.
pub(super) fn check(page: &Page, places: &Places, problems: &mut Vec<String>) -> usize {
    let blocks = page.blocks.iter().filter(|block| block.language == "yaml");
    let blocks = blocks.filter(|block| block.marker.as_deref() != Some("not-config"));
    let check = |block: &Block| {
        if let Err(problem) = check_block(block, places) {
            problems.push(format!("{}:{}: {problem}", page.name, block.line));
        }
    };
    blocks.map(check).count()
}

fn check_block(block: &Block, places: &Places) -> Result<(), String> {
    let config = places.place(&block.text).ok_or(
        "the keys of the block are not those of a fleet, an agent, a schedule or another known place; \
         `<!-- docs-test: not-config -->` above the block marks YAML that is not config",
    )?;
    let program = Program::new();
    let at = |name: &str| program.folder.path().join(name);
    fs::write(at("cowhand.yaml"), &config).unwrap();
    for name in config.lines().filter_map(|line| line.trim().strip_prefix("- path: ")) {
        fs::create_dir_all(at(name).parent().unwrap()).unwrap();
        let text = if name.ends_with("/cowhand.yaml") { "agents: []\n" } else { "name: other\n" };
        fs::write(at(name), text).unwrap();
    }
    let answer = program.run(&["config", "check"], &variables(&config));
    match (block.marker.as_deref(), answer.code) {
        (Some("refused"), Some(3)) => Ok(()),
        (Some("refused"), _) => Err("the block is accepted, and its marker says `refused`".to_owned()),
        (_, Some(0)) => match unexpected_warning(&block.text, &answer.stderr) {
            Some(warning) => Err(warning.to_owned()),
            None => Ok(()),
        },
        _ => Err(format!("{}{}", answer.stdout, answer.stderr)),
    }
}

/// Returns a warning about a whole config, which people may copy unchanged. A fragment may have warnings, because the
/// rest of its config is missing. An example of another key may have no schedules.
fn unexpected_warning<'a>(text: &str, printed: &'a str) -> Option<&'a str> {
    let is_whole = top_keys(text).iter().any(|key| key == "agents");
    let mut warnings = printed.lines().filter(|line| line.starts_with("warning: "));
    warnings.find(|line| is_whole && !line.ends_with("it has no schedules and no prompt"))
}

/// Returns a value for each variable that the config uses: `${NAME}` or `secret_env: NAME`.
fn variables(config: &str) -> Vec<(String, String)> {
    let in_text = config.split("${").skip(1);
    let secrets = config.split("secret_env: ").skip(1);
    let names = in_text.chain(secrets).filter_map(|rest| rest.split(['}', ':', ',', ' ', '\n']).next());
    names.map(|name| (name.to_owned(), "value".to_owned())).collect()
}

/// Returns the names of all properties of an object in the schema, including those of its variants.
fn properties(schema: &Value) -> BTreeSet<String> {
    let variants = schema["anyOf"].as_array().into_iter().flatten();
    let objects = variants.chain([schema]).filter_map(|variant| variant["properties"].as_object());
    let keys = |object: &Map<String, Value>| {
        // A trigger and a work source have similar keys but different types, so the key `type` includes its value.
        let kind = object.get("type").and_then(|kind| kind["const"].as_str());
        object.keys().map(|key| with_type(key, kind)).collect::<Vec<_>>()
    };
    objects.flat_map(keys).collect()
}

fn with_type(key: &str, value: Option<&str>) -> String {
    match value {
        Some(value) if key == "type" => format!("type: {value}"),
        _ => key.to_owned(),
    }
}

/// Returns the keys in the first column, `type` with its value.
fn top_keys(text: &str) -> Vec<String> {
    let key =
        |line: &str| line.split_once(':').map(|(key, value)| with_type(key, value.split_whitespace().next()));
    text.lines().filter(|line| !line.starts_with([' ', '#', '-'])).filter_map(key).collect()
}

/// Returns the lines that are indented, each without its first two spaces.
fn without_indentation(text: &str) -> String {
    text.lines().filter_map(|line| line.strip_prefix("  ")).flat_map(|line| [line, "\n"]).collect()
}

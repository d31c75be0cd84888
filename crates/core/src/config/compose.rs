//! Fleets of fleets: follows the files and lays the layers over each other, defaults → agent → `overrides`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use super::check::{Reading, check};
use super::load::{Draft, Loader, normal};
use super::merge::merge;
use super::node::{FileId, Location, Node, Value};
use super::problem::Problem;
use super::schema::SCHEMA;
use crate::id::check_name;

/// Fleets in fleets in fleets: deeper than anyone goes, and far from the end of the stack.
const MOST_LEVELS: usize = 32;
/// Each file may name the next one many times, so depth alone bounds nothing.
const MOST_FLEETS: usize = 1_000;
/// The most nodes of all merged agents: a large `defaults` times many agents is a bomb too.
const MOST_MERGED: usize = 1_000_000;

/// What a fleet gets from the one above it.
struct Above {
    /// The files from the root to here, this one included.
    files: Vec<PathBuf>,
    /// The names from the root to here.
    names: Vec<String>,
    defaults: Option<Node>,
    herdctl: bool,
}

/// Collects the agents of the root file and of all below. Answers what the root file says beside them.
pub(super) fn root(loader: &mut Loader<'_>, path: &Path) -> Json {
    let above =
        Above { files: vec![path.to_owned()], names: Vec::new(), defaults: None, herdctl: is_herdctl(path) };
    let reading = Reading { herdctl: above.herdctl, ..Reading::default() };
    let Some((node, file)) = loader.file(path, None, reading) else {
        return Json::Object(serde_json::Map::new());
    };
    let mut rest = node.clone();
    for section in ["agents", "fleets", "defaults"] {
        rest.remove(section);
    }
    // Checked a second time only for its typed value; the problems are the same ones.
    let shown = Loader::masked(check(&mut rest, SCHEMA.fleet(), reading, &mut loader.problems));
    fleet(loader, node, file, above);
    shown
}

fn fleet(loader: &mut Loader<'_>, mut node: Node, file: FileId, mut above: Above) {
    let own = node.remove("defaults").filter(|defaults| !defaults.is_null());
    above.defaults = match (above.defaults.take(), own) {
        (Some(base), Some(over)) => Some(merge(base, over)),
        (base, over) => over.or(base),
    };
    for (index, entry) in
        node.remove("agents").as_ref().map(Node::list).unwrap_or_default().iter().enumerate()
    {
        agent(loader, entry, index, file, &above);
    }
    let mut names = HashMap::new();
    for (index, entry) in node.get("fleets").map(Node::list).unwrap_or_default().iter().enumerate() {
        sub_fleet(loader, entry, &format!("fleets[{index}]"), file, &above, &mut names);
    }
}

fn agent(loader: &mut Loader<'_>, entry: &Node, index: usize, file: FileId, above: &Above) {
    let Some(entries) = entry.entries().filter(|_| loader.merged <= MOST_MERGED) else { return };
    let (base, home) = if let Some(path) = entry.get("path") {
        for (key, beside) in entries.iter().filter(|(key, _)| !matches!(key.as_str(), "path" | "overrides")) {
            let message = format!("`{key}` stands beside `path`");
            let help = format!("move `{key}` under `overrides`, or leave out `path`");
            loader
                .problems
                .add(Problem::error(beside.key_at, message).key(format!("agents[{index}].{key}")).help(help));
        }
        let reading =
            Reading { herdctl: above.herdctl, agent_file: true, partial: true, ..Reading::default() };
        let Some(text) = path.text() else {
            loader.complete = false;
            return;
        };
        let target = beside(loader, file, text);
        match loader.file(&target, Some((path.at, format!("agents[{index}].path"))), reading) {
            Some(found) => found,
            None => return,
        }
    } else {
        let mut inline = entry.clone();
        inline.remove("overrides");
        (inline, file)
    };
    let mut node = match &above.defaults {
        Some(defaults) => merge(for_agent(defaults), base),
        None => base,
    };
    if let Some(overrides) = entry.get("overrides") {
        node = merge(node, overrides.clone());
    }
    if let Some(defaults) = &above.defaults {
        inherit_timing(&mut node, defaults);
    }
    inherit_work_source(&mut node);
    if fits(loader, &node, entry.at) {
        let (fleets, herdctl) = (above.names.clone(), above.herdctl);
        let key = if home == file { format!("agents[{index}]") } else { String::new() };
        loader.agents.push(Draft { node, fleets, home, entry: entry.at, key, herdctl });
    }
}

fn fits(loader: &mut Loader<'_>, node: &Node, at: Location) -> bool {
    let before = loader.merged;
    loader.merged = before.saturating_add(node.count());
    if before <= MOST_MERGED && loader.merged > MOST_MERGED {
        let message =
            format!("the agents have more than {MOST_MERGED} values once the defaults are merged in");
        loader.problems.add(Problem::error(at, message));
    }
    loader.merged <= MOST_MERGED
}

/// The keys of `defaults` that an agent has too; the others are for its schedules.
fn for_agent(defaults: &Node) -> Node {
    split_defaults(defaults, true)
}

fn split_defaults(defaults: &Node, agent: bool) -> Node {
    let mut part = defaults.clone();
    if let Value::Map(map) = &mut part.value {
        let known = &SCHEMA.agent()["properties"];
        map.entries.retain(|key, _| known.get(key).is_some() == agent);
    }
    part
}

fn inherit_timing(agent: &mut Node, defaults: &Node) {
    let timing = split_defaults(defaults, false);
    if timing.entries().is_some_and(|entries| !entries.is_empty()) {
        each_schedule(agent, |schedule| *schedule = merge(timing.clone(), schedule.clone()));
    }
}

/// A schedule's work source is laid over its agent's.
fn inherit_work_source(agent: &mut Node) {
    let Some(source) = agent.entry("work_source").cloned() else { return };
    each_schedule(agent, |schedule| {
        if let Value::Map(map) = &mut schedule.value {
            match map.entries.get_mut("work_source") {
                Some(own) => own.node = merge(source.node.clone(), own.node.clone()),
                None => _ = map.entries.insert("work_source".to_owned(), source.clone()),
            }
        }
    });
}

fn each_schedule(agent: &mut Node, mut change: impl FnMut(&mut Node)) {
    let Value::Map(map) = &mut agent.value else { return };
    let Some(Value::Map(schedules)) = map.entries.get_mut("schedules").map(|entry| &mut entry.node.value)
    else {
        return;
    };
    for schedule in schedules.entries.values_mut().filter(|schedule| schedule.node.entries().is_some()) {
        change(&mut schedule.node);
    }
}

fn sub_fleet(
    loader: &mut Loader<'_>,
    entry: &Node,
    key: &str,
    file: FileId,
    above: &Above,
    names: &mut HashMap<String, Location>,
) {
    let Some((at, path)) = entry.get("path").and_then(|path| Some((path.at, path.text()?))) else {
        loader.complete = false;
        return;
    };
    let path = beside(loader, file, path);
    loader.fleets += 1;
    if loader.fleets > MOST_FLEETS {
        loader.complete = false;
        if loader.fleets == MOST_FLEETS + 1 {
            let message = format!("there are more than {MOST_FLEETS} fleets");
            loader.problems.add(Problem::error(at, message).key(key));
        }
        return;
    }
    if let Some(message) = never_ends(&path, above) {
        loader.problems.add(Problem::error(at, message).key(format!("{key}.path")));
        return;
    }
    let herdctl = above.herdctl || is_herdctl(&path);
    let Some((mut node, file)) =
        loader.file(&path, Some((at, format!("{key}.path"))), Reading { herdctl, ..Reading::default() })
    else {
        return;
    };
    if let Some(overrides) = entry.get("overrides") {
        node = merge(node, overrides.clone());
    }
    let (name, name_at) = name_of(entry, &node, &path, at);
    if let Err(error) = check_name(&name) {
        let help = "give the reference a `name`".to_owned();
        loader.problems.add(Problem::error(name_at, error.to_string()).key(key).help(help));
        return;
    }
    if let Some(first) = names.insert(name.clone(), name_at) {
        let message = format!("two fleets here are called `{name}`; the first is on line {}", first.line);
        let help = "give one of the references another `name`".to_owned();
        loader.problems.add(Problem::error(name_at, message).key(key).help(help));
        return;
    }
    let grown = |list: &[String]| list.iter().cloned().chain([name.clone()]).collect();
    let files = above.files.iter().cloned().chain([path]).collect();
    let below = Above { files, names: grown(&above.names), defaults: above.defaults.clone(), herdctl };
    fleet(loader, node, file, below);
}

fn never_ends(path: &Path, above: &Above) -> Option<String> {
    if let Some(first) = above.files.iter().position(|file| file == path) {
        let round: Vec<String> = above.files[first..].iter().map(|file| file.display().to_string()).collect();
        return Some(format!("this fleet contains itself: {} → {}", round.join(" → "), path.display()));
    }
    (above.files.len() >= MOST_LEVELS)
        .then(|| format!("fleets are nested more than {MOST_LEVELS} levels deep"))
}

/// The reference's own name, then the fleet's, then that of its directory; and where to point.
fn name_of(entry: &Node, fleet: &Node, path: &Path, path_at: Location) -> (String, Location) {
    let own = entry.get("name").and_then(|name| Some((name.text()?.to_owned(), name.at)));
    let fleets = || fleet.get("fleet")?.get("name")?.text().map(|name| (name.to_owned(), path_at));
    let directory =
        || path.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned();
    own.or_else(fleets).unwrap_or_else(|| (directory(), path_at))
}

fn beside(loader: &Loader<'_>, file: FileId, path: &str) -> PathBuf {
    normal(&loader.sources.directory(file).join(path))
}

fn is_herdctl(path: &Path) -> bool {
    path.file_stem().is_some_and(|stem| stem == "herdctl")
}

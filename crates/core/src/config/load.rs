//! The loader: reads the config files of a fleet, and builds the roster and the list of problems from them.

use std::collections::HashMap;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use serde_json::{Value as Json, json};

use super::checks::unused::{self, UnusedSettings};
use super::interpolate::interpolate;
use super::node::{Entry, FileId, Location, Node, Sources};
use super::parse::parse;
use super::problem::{Problem, Problems, Severity};
use super::resolve::Resolved;
use super::schema::SCHEMA;
use super::schema_check::{CheckOptions, Checked, check};
use super::{compose, reference, resolve, secret};
use crate::traces::TracesConfig;
use indexmap::IndexMap;
use jiff::Timestamp;

use crate::budget::FleetBudget;
use crate::policy::Zone;
use crate::price::Prices;
use crate::provider::Provider;
use crate::retention::Retention;
use crate::roster::{AgentList, Roster, RosterIndex};
use crate::server::ServerConfig;

/// Access to files, the environment, and the time and time zone of the machine.
pub struct ConfigEnvironment<'a> {
    pub read: &'a mut dyn FnMut(&Path) -> io::Result<String>,
    pub env: &'a dyn Fn(&str) -> Option<String>,
    /// Checks whether a folder with this path exists.
    pub is_folder: &'a dyn Fn(&Path) -> bool,
    /// Time zone of the machine, which is used where the config sets none.
    pub zone: Zone,
    /// Time at which the config is checked: schedules that cannot fire after it are reported.
    pub now: Timestamp,
}

impl std::fmt::Debug for ConfigEnvironment<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConfigEnvironment").field("zone", &self.zone).finish_non_exhaustive()
    }
}

/// Result of loading a config.
#[derive(Debug)]
pub struct LoadedConfig {
    /// The roster, complete only if there are no errors.
    pub roster: Roster,
    /// The merged config with its secrets masked, for people to read.
    pub shown: Json,
    /// Problems sorted by file and line.
    pub problems: Vec<Problem>,
    pub sources: Sources,
}

impl LoadedConfig {
    pub fn errors(&self) -> usize {
        self.problems.iter().filter(|problem| problem.severity == Severity::Error).count()
    }

    pub fn warnings(&self) -> usize {
        self.problems.len() - self.errors()
    }
}

/// Loads the fleet of a root file. A fleet file named `herdctl.*` and all files that it refers to are read by the rules
/// of herdctl.
pub fn load(root: &Path, environment: ConfigEnvironment<'_>) -> LoadedConfig {
    let mut loader = Loader {
        environment,
        sources: Sources::default(),
        problems: Problems::default(),
        agents: Vec::new(),
        name: None,
        store: None,
        retention: Retention::default(),
        prices: Prices::default(),
        providers: IndexMap::new(),
        provider_locations: Vec::new(),
        unused: UnusedSettings::default(),
        default_work_sources: Vec::new(),
        budget: FleetBudget::default(),
        server: ServerConfig::default(),
        traces: None,
        url_passwords: Vec::new(),
        merged: 0,
        has_too_many_nodes: false,
        fleets: 0,
        complete: true,
        files: HashMap::new(),
    };
    let mut shown = compose::root(&mut loader, &normalize(root));
    let budget = loader.budget.clone();
    let mut roster = Roster {
        name: loader.name.take(),
        agents: AgentList::new(),
        budget: budget.limits,
        zone: budget.timezone.unwrap_or_else(|| loader.environment.zone.clone()),
        store: loader.store.take(),
        retention: loader.retention,
        prices: loader.prices.clone(),
        providers: loader.providers.clone(),
        server: loader.server.clone(),
        traces: loader.traces.take(),
        url_passwords: Vec::new(),
        index: RosterIndex::default(),
    };
    let mut places = HashMap::new();
    let mut shown_agents = Vec::new();
    let mut broken = Vec::new();
    for mut draft in std::mem::take(&mut loader.agents) {
        match resolve::agent(&mut loader, &mut draft, &mut places) {
            Resolved::Whole(agent, value) => {
                shown_agents.push(value);
                roster.agents.push(agent);
                loader.agents.push(draft);
            }
            Resolved::Broken(agent) => broken.push((draft, agent)),
        }
    }
    let known = reference::KnownNames::new(&roster, &loader.agents, &broken, loader.complete);
    known.check(&mut loader.problems);
    if loader.complete && broken.is_empty() {
        unused::providers(&mut loader, &roster);
        unused::default_work_sources(&mut loader);
    }
    std::mem::take(&mut loader.unused).report(&mut loader.problems);
    shown["agents"] = json!(shown_agents);
    roster.url_passwords = std::mem::take(&mut loader.url_passwords);
    LoadedConfig { roster, shown, problems: loader.problems.finish(), sources: loader.sources }
}

pub(super) struct Loader<'a> {
    pub environment: ConfigEnvironment<'a>,
    pub sources: Sources,
    pub problems: Problems,
    pub agents: Vec<Draft>,
    /// Name of the fleet in the root file.
    pub name: Option<String>,
    /// `store` of the root file.
    pub store: Option<String>,
    pub retention: Retention,
    pub prices: Prices,
    pub providers: IndexMap<String, Provider>,
    /// Names of the providers and the locations of these names.
    pub provider_locations: Vec<(String, Location)>,
    /// Settings that may have no effect, collected until all agents are known.
    pub unused: UnusedSettings,
    /// `work_source` in the `defaults` of each fleet.
    pub default_work_sources: Vec<Entry>,
    pub budget: FleetBudget,
    pub server: ServerConfig,
    pub traces: Option<TracesConfig>,
    /// Passwords in the URLs of all files.
    pub url_passwords: Vec<String>,
    /// Number of nodes of all merged agents so far.
    pub merged: usize,
    /// True if the merged agents exceed the limit, so that no further agent is collected.
    pub has_too_many_nodes: bool,
    /// Number of references to sub-fleets so far.
    pub fleets: usize,
    /// False if an agent or a sub-fleet was left out, for example because its file cannot be read.
    pub complete: bool,
    /// Trees of the files read so far, so that a file with several references is parsed once. The key is the path and
    /// whether the file was read as an agent's file. The value is none if the file is not a valid YAML map.
    files: HashMap<(PathBuf, bool), Option<ParsedFile>>,
}

/// The tree of a file, and the file.
type ParsedFile = (Rc<Node>, FileId);

/// An agent with all its layers merged, not yet typed.
pub(super) struct Draft {
    pub node: Node,
    /// Names of its fleets, outermost first.
    pub fleets: Vec<String>,
    /// File that defines it.
    pub home: FileId,
    /// Location of its entry in the fleet file.
    pub entry: Location,
    /// Path of the key of its entry, for example `agents[3]`; empty if the agent is defined in another file.
    pub key: String,
    pub herdctl: bool,
}

impl Draft {
    /// Returns the path of a key inside the agent, from the root of its file.
    pub(super) fn key_of(&self, path: &str) -> String {
        if self.key.is_empty() { path.to_owned() } else { format!("{}.{path}", self.key) }
    }
}

impl Loader<'_> {
    /// Reads one file, expands its variables and checks it as written. Returns none if the file cannot be read or is
    /// not a map. `asked` is the location and the path of the key that names the file; none for the root file.
    pub(super) fn file(
        &mut self,
        path: &Path,
        asked: Option<(Location, String)>,
        reading: CheckOptions<'_>,
    ) -> Option<(Rc<Node>, FileId)> {
        let as_what = (path.to_owned(), reading.agent_file);
        if let Some(known) = self.files.get(&as_what) {
            return known.clone();
        }
        let text = match (self.environment.read)(path) {
            Ok(text) => text,
            Err(error) => {
                let (at, key) = asked.unwrap_or_else(|| {
                    let file = self.sources.add(path.to_owned(), String::new());
                    (Location::whole(file), String::new())
                });
                let message = format!("cannot read {}: {}", path.display(), in_words(&error));
                self.problems.add(Problem::error(at, message).key(key));
                return None;
            }
        };
        let blank = text.trim().is_empty();
        let file = self.sources.add(path.to_owned(), text);
        if blank {
            // Many programs truncate a file before they write it, and the file may be read at that moment.
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let message = format!("{name} is empty; perhaps a program is writing it at the moment");
            let help = "for a fleet without agents, write `agents: []`".to_owned();
            self.problems.add(
                Problem::error(Location::whole(file), message).help((!reading.agent_file).then_some(help)),
            );
        }
        let found = self.parse_and_check(file, reading).map(|node| (Rc::new(node), file));
        self.files.insert(as_what, found.clone());
        found
    }

    fn parse_and_check(&mut self, file: FileId, reading: CheckOptions<'_>) -> Option<Node> {
        let mut node = parse(file, self.sources.text(file), &mut self.problems)?;
        interpolate(&mut node, self.sources.text(file), self.environment.env, &mut self.problems);
        let schema = if reading.agent_file { SCHEMA.agent } else { SCHEMA.fleet };
        check(&mut node, schema, CheckOptions { only_problems: true, ..reading }, &mut self.problems);
        node.entries().is_some().then_some(node)
    }

    /// Remembers the passwords in the URLs of a part of the config.
    pub(super) fn remember_passwords(&mut self, checked: &Checked) {
        secret::add_passwords(&checked.value, &mut self.url_passwords);
        for pointer in &checked.addresses {
            if let Some(address) = checked.value.pointer(pointer).and_then(Json::as_str) {
                secret::add_unmasked_passwords(address, &mut self.url_passwords);
            }
        }
    }

    pub(super) fn masked(checked: Checked) -> Json {
        let mut value = checked.value;
        secret::mask(&mut value, &checked.secrets);
        value
    }
}

fn in_words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such file".to_owned(),
        io::ErrorKind::IsADirectory => "it is a directory".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::InvalidData => "it is not UTF-8 text".to_owned(),
        _ => error.to_string(),
    }
}

/// Removes `.` and, where possible, `..` from a path, by text only, because core does not access a disk.
pub(super) fn normalize(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if matches!(normal.components().next_back(), Some(Component::Normal(_))) => {
                normal.pop();
            }
            _ => normal.push(part),
        }
    }
    if normal.as_os_str().is_empty() { PathBuf::from(".") } else { normal }
}

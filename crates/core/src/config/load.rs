//! The loader: reads the config files of a fleet, and builds the roster and the list of problems from them.

use std::collections::HashMap;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use serde_json::Value as Json;

use super::checks::sandbox::ExposedDirectory;
use super::checks::unused::{self, UnusedSettings};
use super::interpolate::interpolate;
use super::kept::{FleetFiles, InputLog, KeptFleets};
use super::node::{Entry, FileId, Location, Node, Sources, Value};
use super::parse::parse;
use super::problem::{Problem, Problems, Severity};
use super::schema::SCHEMA;
use super::schema_check::{CheckOptions, Checked, check};
use super::shown::ShownConfig;
use super::{checks, compose, digest, reference, secret};
use crate::traces::TracesConfig;
use indexmap::IndexMap;
use jiff::Timestamp;

use crate::budget::FleetBudget;
use crate::id::AgentName;
use crate::lease::LeaseTimes;
use crate::notification::NotificationSettings;
use crate::policy::Zone;
use crate::price::Prices;
use crate::provider::Provider;
use crate::retention::Retention;
use crate::roster::{Agent, AgentList, Roster, RosterIndex};
use crate::server::ServerConfig;
use crate::trigger::TriggerKind;

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
    pub shown: ShownConfig,
    /// Problems sorted by file and line.
    pub problems: Vec<Problem>,
    pub sources: Sources,
    /// Fleets that the next load does not have to read again if their files are unchanged.
    pub kept: KeptFleets,
}

impl LoadedConfig {
    pub fn errors(&self) -> usize {
        self.problems.iter().filter(|problem| problem.severity == Severity::Error).count()
    }

    /// Returns the digest by which nodes compare their configs. The files are parsed again, so this is not called for
    /// every load.
    pub fn digest(&self) -> String {
        digest::of_sources(&self.sources)
    }

    pub fn warnings(&self) -> usize {
        self.problems.len() - self.errors()
    }
}

/// Loads the fleet of a root file. A fleet file named `herdctl.*` and all files that it refers to are read by the rules
/// of herdctl.
pub fn load(root: &Path, environment: ConfigEnvironment<'_>) -> LoadedConfig {
    load_again(root, environment, KeptFleets::default())
}

/// Loads a fleet as `load` does, with the same result. `kept` comes from an earlier load: a fleet in it is taken over
/// if its files and other inputs have not changed.
pub fn load_again(root: &Path, environment: ConfigEnvironment<'_>, kept: KeptFleets) -> LoadedConfig {
    let log = InputLog::default();
    let ConfigEnvironment { read, env, is_folder, zone, now } = environment;
    let env = |name: &str| log.variable(name, env);
    let is_folder = |path: &Path| log.folder(path, is_folder);
    let mut loader = Loader {
        environment: ConfigEnvironment { read, env: &env, is_folder: &is_folder, zone, now },
        log: &log,
        sources: Sources::default(),
        problems: Problems::default(),
        agents: LoadedAgents::default(),
        broken: Vec::new(),
        name_locations: HashMap::new(),
        name: None,
        store: None,
        leases: LeaseTimes::default(),
        retention: Retention::default(),
        prices: Prices::default(),
        providers: IndexMap::new(),
        provider_locations: Vec::new(),
        unused: UnusedSettings::default(),
        exposed: Vec::new(),
        default_work_sources: Vec::new(),
        budget: FleetBudget::default(),
        max_concurrent: None,
        server: ServerConfig::default(),
        traces: None,
        notifications: NotificationSettings::default(),
        url_passwords: Vec::new(),
        merged: 0,
        has_too_many_nodes: false,
        fleets: 0,
        complete: true,
        files: HashMap::new(),
        earlier: kept,
        kept: KeptFleets::default(),
        fleet_files: FleetFiles::default(),
        read_ahead: HashMap::new(),
    };
    let shown = compose::root(&mut loader, &normalize(root));
    let budget = loader.budget.clone();
    let mut roster = Roster {
        name: loader.name.take(),
        agents: AgentList::new(),
        budget: budget.limits,
        max_concurrent: loader.max_concurrent,
        capacity: None,
        zone: budget.timezone.unwrap_or_else(|| loader.environment.zone.clone()),
        store: loader.store.take(),
        leases: loader.leases,
        retention: loader.retention,
        prices: loader.prices.clone(),
        providers: loader.providers.clone(),
        server: loader.server.clone(),
        traces: loader.traces.take(),
        notifications: loader.notifications.clone(),
        url_passwords: Vec::new(),
        has_errors: false,
        index: RosterIndex::default(),
    };
    for agent in std::mem::take(&mut loader.agents.agents) {
        roster.agents.push(agent);
    }
    let broken = std::mem::take(&mut loader.broken);
    reference::check(&roster, &loader.agents.drafts, &broken, loader.complete, &mut loader.problems);
    checks::chat::shared_bots(&roster, &loader.agents.drafts, &mut loader.problems);
    checks::sandbox::report_exposed(&mut loader);
    if loader.complete && broken.is_empty() {
        checks::provider::unused(&mut loader, &roster);
        checks::provider::reserves(&mut loader, &roster);
        unused::default_work_sources(&mut loader);
    }
    std::mem::take(&mut loader.unused).report(&mut loader.problems);
    roster.url_passwords = std::mem::take(&mut loader.url_passwords);
    let problems = loader.problems.finish();
    roster.has_errors = problems.iter().any(|problem| problem.severity == Severity::Error);
    LoadedConfig {
        roster,
        shown: ShownConfig::new(shown, loader.agents.shown),
        problems,
        sources: loader.sources,
        kept: loader.kept,
    }
}

pub(super) struct Loader<'a> {
    pub environment: ConfigEnvironment<'a>,
    /// The variables and folders that were looked up since the current fleet was begun.
    pub log: &'a InputLog,
    pub sources: Sources,
    pub problems: Problems,
    /// Agents without errors.
    pub agents: LoadedAgents,
    /// Agents with errors, as far as they can be read.
    pub broken: Vec<(Draft, Option<Box<Agent>>)>,
    /// Location of the name of each agent.
    pub name_locations: HashMap<AgentName, Location>,
    /// Name of the fleet in the root file.
    pub name: Option<String>,
    /// `store` of the root file.
    pub store: Option<String>,
    /// Times of the leases, from `leases` of the root file.
    pub leases: LeaseTimes,
    pub retention: Retention,
    pub prices: Prices,
    pub providers: IndexMap<String, Provider>,
    /// Names of the providers and the locations of these names.
    pub provider_locations: Vec<(String, Location)>,
    /// Settings that may have no effect, collected until all agents are known.
    pub unused: UnusedSettings,
    /// Directories of agents in which Landlock cannot protect config files, collected until all files are known.
    pub exposed: Vec<ExposedDirectory>,
    /// `work_source` in the `defaults` of each fleet.
    pub default_work_sources: Vec<Entry>,
    pub budget: FleetBudget,
    /// `fleet.max_concurrent` of the root file.
    pub max_concurrent: Option<u32>,
    pub server: ServerConfig,
    pub traces: Option<TracesConfig>,
    pub notifications: NotificationSettings,
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
    /// The files read so far, so that a file with several references is read once.
    pub files: HashMap<FileKey, ReadFile>,
    /// Fleets of the previous load.
    pub earlier: KeptFleets,
    /// Fleets for the next load.
    pub kept: KeptFleets,
    pub fleet_files: FleetFiles,
    /// Texts of files that were read to find out whether they have changed.
    pub read_ahead: HashMap<PathBuf, String>,
}

/// Path of a file, and whether it is read as an agent's file.
pub(super) type FileKey = (PathBuf, bool);

/// A file that was read.
pub(super) enum ReadFile {
    /// The file is not a valid YAML map.
    Unusable,
    Tree(Rc<Node>, FileId),
    /// The tree was dropped. If the file has another reference, its text is parsed again.
    Text {
        file: FileId,
        herdctl: bool,
    },
}

/// Agents without errors, in three lists of the same length.
#[derive(Debug, Clone, Default)]
pub(super) struct LoadedAgents {
    pub agents: Vec<Arc<Agent>>,
    /// The drafts, reduced to the parts that other agents can refer to.
    pub drafts: Vec<Arc<Draft>>,
    /// The agents as they are shown.
    pub shown: Vec<Arc<str>>,
}

impl LoadedAgents {
    pub(super) fn extend(&mut self, more: Self) {
        self.agents.extend(more.agents);
        self.drafts.extend(more.drafts);
        self.shown.extend(more.shown);
    }
}

/// An agent with all its layers merged, not yet typed.
#[derive(Debug)]
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

    /// Drops the parts that only the checks of the agent itself need.
    pub(super) fn reduce(&mut self, agent: &Agent) {
        let refers = |name: &String| {
            let schedule = agent.schedules.iter().find(|schedule| schedule.name.as_str() == name);
            schedule.is_none_or(|schedule| {
                let follows = matches!(schedule.trigger.kind(), TriggerKind::Event(_));
                follows || schedule.adopts.is_some() || schedule.work_source.is_some()
            })
        };
        let Value::Map(map) = &mut self.node.value else { return };
        map.entries.retain(|key, _| matches!(key.as_str(), "name" | "followups" | "schedules" | "chat"));
        if let Some(Value::Map(schedules)) =
            map.entries.get_mut("schedules").map(|entry| &mut entry.node.value)
        {
            schedules.entries.retain(|name, _| refers(name));
            schedules.entries.shrink_to_fit();
        }
        let is_empty = |entry: &Entry| entry.node.entries().is_some_and(IndexMap::is_empty);
        map.entries.retain(|key, entry| key != "schedules" || !is_empty(entry));
        map.entries.shrink_to_fit();
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
        let key = (path.to_owned(), reading.agent_file);
        match self.files.get(&key) {
            None => {}
            Some(ReadFile::Unusable) => return None,
            Some(ReadFile::Tree(node, file)) => {
                let (node, file) = (Rc::clone(node), *file);
                self.note_known_file(file);
                return Some((node, file));
            }
            Some(ReadFile::Text { file, herdctl }) => {
                let (file, reading) = (*file, CheckOptions { herdctl: *herdctl, ..reading });
                self.note_known_file(file);
                // The problems of the file are already reported.
                let problems = std::mem::take(&mut self.problems);
                let node = self.parse_and_check(file, reading).map(Rc::new);
                self.problems = problems;
                if let Some(node) = node.clone() {
                    self.files.insert(key, ReadFile::Tree(node, file));
                }
                return node.map(|node| (node, file));
            }
        }
        let text = match self.read(path) {
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
        self.note_file(key.clone(), &text);
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
        let read = found.clone().map_or(ReadFile::Unusable, |(node, file)| ReadFile::Tree(node, file));
        self.files.insert(key, read);
        found
    }

    /// Reads a file, unless it was read ahead.
    pub(super) fn read(&mut self, path: &Path) -> io::Result<String> {
        match self.read_ahead.remove(path) {
            Some(text) => Ok(text),
            None => (self.environment.read)(path),
        }
    }

    /// Drops the tree of a fleet file whose agents have been collected. Few files have a second reference, and the
    /// trees of all files need much memory.
    pub(super) fn drop_tree(&mut self, path: &Path, herdctl: bool) {
        if let Some(read) = self.files.get_mut(&(path.to_owned(), false))
            && let ReadFile::Tree(_, file) = *read
        {
            *read = ReadFile::Text { file, herdctl };
        }
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

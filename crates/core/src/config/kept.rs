//! Fleets that a load keeps for the next load. A sub-fleet is taken from the previous load if all inputs of its agents
//! are the same: its files, the layers above it, and the variables and folders that were looked up. So a reload parses
//! and resolves only the sub-fleets whose inputs have changed.
//!
//! Problems and drafts contain locations, and a location contains the number of its file. Therefore a fleet is taken
//! only if its files have the same numbers as before.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uuid::Uuid;

use super::checks::unused::UnusedSettings;
use super::compose::{CollectedFleet, merged_limit};
use super::load::{ConfigEnvironment, FileKey, LoadedAgents, Loader, ReadFile};
use super::node::{Entry, FileId, Location, Node};
use super::problem::Problems;
use crate::budget::FleetBudget;
use crate::notification::NotificationSettings;
use crate::policy::Zone;
use crate::price::Prices;
use crate::roster::Schedule;
use crate::server::ServerConfig;

/// The fleets of a load that have no errors, for the next load of the same root file.
#[derive(Debug, Clone, Default)]
pub struct KeptFleets {
    /// Settings of the root file with which the agents were checked.
    settings: Option<RootSettings>,
    fleets: HashMap<FleetKey, Arc<KeptFleet>>,
}

/// The settings of the root file, and of the machine, on which the checks of agents depend.
#[derive(Debug, Clone, PartialEq)]
struct RootSettings {
    budget: FleetBudget,
    prices: Prices,
    server: ServerConfig,
    notifications: NotificationSettings,
    zone: Zone,
    has_store: bool,
}

/// The reference to a sub-fleet.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct FleetKey {
    pub path: PathBuf,
    /// Names of the fleets above it, outermost first.
    pub above: Vec<String>,
    /// Name in the reference.
    pub name: Option<String>,
}

/// The inputs of a sub-fleet from the files above it.
#[derive(Debug, PartialEq)]
pub(super) struct FleetInputs {
    /// The files above it, from the root file on.
    pub files: Vec<PathBuf>,
    pub defaults: Option<Arc<Node>>,
    pub overrides: Option<Node>,
    pub herdctl: bool,
}

/// A sub-fleet without sub-fleets, with all inputs and results of its load.
#[derive(Debug)]
struct KeptFleet {
    inputs: FleetInputs,
    lookups: Lookups,
    /// Its files in the order of reading: the fleet's own file first.
    files: Vec<KeptFile>,
    /// Number of the fleet's own file. The other files follow.
    first_file: usize,
    name: String,
    agents: LoadedAgents,
    problems: Problems,
    unused: UnusedSettings,
    default_work_sources: Vec<Entry>,
    url_passwords: Vec<String>,
    /// Number of nodes of its merged agents.
    merged: usize,
}

#[derive(Debug)]
struct KeptFile {
    key: FileKey,
    digest: Uuid,
}

/// The files of the fleet that is being loaded.
#[derive(Debug, Default)]
pub(super) struct FleetFiles {
    files: Vec<KeptFile>,
    /// Number of files before the fleet.
    first: usize,
    /// True if the fleet also uses a file that was read before the fleet was begun.
    has_shared: bool,
}

/// The variables and folders that a part of the config looks up, with the answers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Lookups {
    variables: BTreeMap<String, Option<String>>,
    folders: BTreeMap<PathBuf, bool>,
}

/// A record of lookups.
#[derive(Debug, Default)]
pub(super) struct InputLog(RefCell<Lookups>);

impl InputLog {
    pub(super) fn variable(&self, name: &str, env: &dyn Fn(&str) -> Option<String>) -> Option<String> {
        let value = env(name);
        self.0.borrow_mut().variables.insert(name.to_owned(), value.clone());
        value
    }

    pub(super) fn folder(&self, path: &Path, is_folder: &dyn Fn(&Path) -> bool) -> bool {
        let exists = is_folder(path);
        self.0.borrow_mut().folders.insert(path.to_owned(), exists);
        exists
    }
}

/// The results of the fleets before the current fleet.
pub(super) struct OuterResults {
    agents: LoadedAgents,
    problems: Problems,
    unused: UnusedSettings,
    default_work_sources: Vec<Entry>,
    url_passwords: Vec<String>,
    lookups: Lookups,
    /// Counters before the fleet.
    merged: usize,
    files: usize,
    broken: usize,
    exposed: usize,
    complete: bool,
}

impl Loader<'_> {
    /// Records the settings of the root file. If they have changed, the fleets of the previous load are not used.
    pub(super) fn keep_settings(&mut self) {
        let settings = RootSettings {
            budget: self.budget.clone(),
            prices: self.prices.clone(),
            server: self.server.clone(),
            notifications: self.notifications.clone(),
            zone: self.environment.zone.clone(),
            has_store: self.store.is_some(),
        };
        if self.earlier.settings.as_ref() != Some(&settings) {
            self.earlier = KeptFleets::default();
        }
        self.kept.settings = Some(settings);
    }

    /// Begins to record the inputs and results of a fleet.
    pub(super) fn begin_fleet(&mut self) -> OuterResults {
        self.fleet_files = FleetFiles { first: self.sources.len(), ..FleetFiles::default() };
        OuterResults {
            agents: std::mem::take(&mut self.agents),
            problems: std::mem::take(&mut self.problems),
            unused: std::mem::take(&mut self.unused),
            default_work_sources: std::mem::take(&mut self.default_work_sources),
            url_passwords: std::mem::take(&mut self.url_passwords),
            lookups: self.log.0.take(),
            merged: self.merged,
            files: self.sources.len(),
            broken: self.broken.len(),
            exposed: self.exposed.len(),
            complete: std::mem::replace(&mut self.complete, true),
        }
    }

    /// Adds the results of the fleet to the results of the fleets before it. Keeps the fleet for the next load if only
    /// the recorded inputs can change its results.
    pub(super) fn end_fleet(
        &mut self,
        outer: OuterResults,
        key: FleetKey,
        inputs: FleetInputs,
        collected: Option<&CollectedFleet>,
    ) {
        let agents = std::mem::replace(&mut self.agents, outer.agents);
        let problems = std::mem::replace(&mut self.problems, outer.problems);
        let unused = std::mem::replace(&mut self.unused, outer.unused);
        let default_work_sources =
            std::mem::replace(&mut self.default_work_sources, outer.default_work_sources);
        let url_passwords = std::mem::replace(&mut self.url_passwords, outer.url_passwords);
        let lookups = self.log.0.replace(outer.lookups);
        let files = std::mem::take(&mut self.fleet_files);
        let is_whole = problems.errors() == 0
            && self.complete
            && !files.has_shared
            && self.broken.len() == outer.broken
            && self.exposed.len() == outer.exposed
            && agents.agents.iter().flat_map(|agent| &agent.schedules).all(|own| self.can_fire(own));
        self.complete &= outer.complete;
        if let Some(collected) = collected.filter(|collected| is_whole && !collected.has_fleets) {
            let kept = KeptFleet {
                inputs,
                lookups,
                files: files.files,
                first_file: outer.files,
                name: collected.name.clone(),
                agents: agents.clone(),
                problems: problems.clone(),
                unused: unused.clone(),
                default_work_sources: default_work_sources.clone(),
                url_passwords: url_passwords.clone(),
                merged: self.merged - outer.merged,
            };
            self.kept.fleets.insert(key, Arc::new(kept));
        }
        self.agents.extend(agents);
        self.problems.extend(problems);
        self.unused.add(unused);
        self.default_work_sources.extend(default_work_sources);
        self.url_passwords.extend(url_passwords);
    }

    /// Takes a fleet from the previous load, if all its inputs are the same, and adds its results. Returns its name.
    /// `names` are the names of the fleets beside it.
    pub(super) fn take_earlier(
        &mut self,
        key: &FleetKey,
        inputs: &FleetInputs,
        names: &HashMap<String, Location>,
    ) -> Option<String> {
        let kept = Arc::clone(self.earlier.fleets.get(key)?);
        let agents = &kept.agents.agents;
        let is_same = kept.inputs == *inputs
            && kept.first_file == self.sources.len()
            && !self.has_too_many_nodes
            && self.merged.saturating_add(kept.merged) <= merged_limit(&self.sources)
            && !names.contains_key(&kept.name)
            && !agents.iter().any(|agent| self.name_locations.contains_key(&agent.name))
            && agents.iter().flat_map(|agent| &agent.schedules).all(|own| self.can_fire(own))
            && kept.lookups.has_same_answers(&self.environment)
            && !kept.files.iter().any(|file| self.files.contains_key(&file.key));
        let texts = is_same.then(|| self.same_texts(&kept.files)).flatten()?;
        self.merged += kept.merged;
        for (file, text) in kept.files.iter().zip(texts) {
            let id = self.sources.add(file.key.0.clone(), text);
            self.files.insert(file.key.clone(), ReadFile::Text { file: id, herdctl: inputs.herdctl });
        }
        for (agent, draft) in agents.iter().zip(&kept.agents.drafts) {
            let at = draft.node.get("name").map_or(draft.entry, |name| name.at);
            self.name_locations.insert(agent.name.clone(), at);
        }
        self.agents.extend(kept.agents.clone());
        self.problems.extend(kept.problems.clone());
        self.unused.add(kept.unused.clone());
        self.default_work_sources.extend(kept.default_work_sources.iter().cloned());
        self.url_passwords.extend(kept.url_passwords.iter().cloned());
        let name = kept.name.clone();
        self.kept.fleets.insert(key.clone(), kept);
        Some(name)
    }

    /// Reads the files of a fleet. Returns their texts if they are the same as before. Otherwise the texts are kept for
    /// the load of the fleet.
    fn same_texts(&mut self, files: &[KeptFile]) -> Option<Vec<String>> {
        let mut texts = Vec::new();
        for file in files {
            // An error is found again when the fleet is loaded.
            let text = self.read(&file.key.0).ok();
            let is_same = text.as_ref().is_some_and(|text| digest(text) == file.digest);
            texts.extend(text);
            if !is_same {
                let paths = files.iter().map(|file| file.key.0.clone());
                self.read_ahead.extend(paths.zip(texts));
                return None;
            }
        }
        Some(texts)
    }

    /// Checks whether the calendar of a schedule lets it fire now or later. The answer depends on the time.
    fn can_fire(&self, schedule: &Schedule) -> bool {
        schedule.timing.is_always_open() || schedule.never_fires(self.environment.now).is_none()
    }

    /// Records that the current fleet has read a file.
    pub(super) fn note_file(&mut self, key: FileKey, text: &str) {
        self.fleet_files.files.push(KeptFile { key, digest: digest(text) });
    }

    /// Records that the current fleet uses a file that has been read already.
    pub(super) fn note_known_file(&mut self, file: FileId) {
        self.fleet_files.has_shared |= file.number() < self.fleet_files.first;
    }
}

impl Lookups {
    fn has_same_answers(&self, environment: &ConfigEnvironment<'_>) -> bool {
        let ConfigEnvironment { env, is_folder, .. } = environment;
        self.variables.iter().all(|(name, value)| env(name) == *value)
            && self.folders.iter().all(|(path, exists)| is_folder(path) == *exists)
    }
}

/// Returns the digest by which an unchanged text is recognised.
fn digest(text: &str) -> Uuid {
    Uuid::new_v5(&Uuid::nil(), text.as_bytes())
}

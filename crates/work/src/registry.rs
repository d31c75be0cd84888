//! Which sources there are: factories by name.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cowhand_core::shape;
use cowhand_core::work::WorkItemId;

use super::{WorkSource, WorkSourceError, files, github};
use cowhand_system::clock::Clock;

/// Makes a source of its config.
pub type Factory =
    dyn Fn(&shape::WorkSource, &Setting) -> Result<Arc<dyn WorkSource>, WorkSourceError> + Send + Sync;

/// A value that whoever starts a fleet hands over, not one for the whole process: two fleets in one program, or two
/// tests, then cannot change each other's sources, and nothing depends on what was loaded first.
#[derive(Clone)]
pub struct Registry {
    factories: BTreeMap<String, Arc<Factory>>,
}

impl Default for Registry {
    fn default() -> Self {
        Self::with_built_ins()
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Registry").field(&self.registered()).finish()
    }
}

impl Registry {
    pub fn empty() -> Self {
        Self { factories: BTreeMap::new() }
    }

    pub fn with_built_ins() -> Self {
        let mut registry = Self::empty();
        registry.add_built_ins();
        registry
    }

    /// What is registered already stays, so a program may put its own in the place of a built-in one.
    pub fn add_built_ins(&mut self) {
        let github = |config: &shape::WorkSource, setting: &Setting| {
            let source = github::GitHubWorkSource::from_config(config, setting)?;
            Ok(Arc::new(source) as Arc<dyn WorkSource>)
        };
        let built_ins: [(&str, Arc<Factory>); 2] =
            [(files::NAME, Arc::new(files::Files::from_config)), (github::SOURCE_TYPE, Arc::new(github))];
        for (name, factory) in built_ins {
            self.factories.entry(name.to_owned()).or_insert(factory);
        }
    }

    /// Under the name that `{type: custom, name: …}` uses and with which the ids of its items begin.
    pub fn register(
        &mut self,
        name: &str,
        factory: impl Fn(&shape::WorkSource, &Setting) -> Result<Arc<dyn WorkSource>, WorkSourceError>
        + Send
        + Sync
        + 'static,
    ) -> Result<(), WorkSourceError> {
        if WorkItemId::new(name, "1").is_err() {
            let message = format!("{name:?} is no name for a work source; use letters, digits and '_'");
            return Err(WorkSourceError::Config(message));
        }
        if self.is_registered(name) {
            return Err(WorkSourceError::Duplicate(name.to_owned()));
        }
        self.factories.insert(name.to_owned(), Arc::new(factory));
        Ok(())
    }

    pub fn create(
        &self,
        config: &shape::WorkSource,
        setting: &Setting,
    ) -> Result<Arc<dyn WorkSource>, WorkSourceError> {
        let Some(factory) = self.factories.get(config.name()) else {
            return Err(WorkSourceError::Unknown {
                name: config.name().to_owned(),
                available: self.registered().iter().map(|name| (*name).to_owned()).collect(),
            });
        };
        factory(config, setting)
    }

    pub fn is_registered(&self, name: &str) -> bool {
        self.factories.contains_key(name)
    }

    /// All names, in the order of the alphabet.
    pub fn registered(&self) -> Vec<&str> {
        self.factories.keys().map(String::as_str).collect()
    }

    /// Whether there was one.
    pub fn unregister(&mut self, name: &str) -> bool {
        self.factories.remove(name).is_some()
    }

    pub fn clear(&mut self) {
        self.factories.clear();
    }
}

/// From a name to a value.
type Variables = dyn Fn(&str) -> Option<String> + Send + Sync;

/// What a source may need from outside its config.
#[derive(Clone)]
pub struct Setting {
    /// Where relative paths begin: the directory of the root config file.
    pub base: PathBuf,
    /// By which a source decides whether a claim has run out.
    pub clock: Clock,
    /// Directories in which agents in a sandbox may write: a source does not follow links that lie there.
    pub writable: Vec<PathBuf>,
    /// What people call the fleet.
    fleet_name: Option<String>,
    variables: Arc<Variables>,
}

/// Without the variables: some of them are secret.
impl fmt::Debug for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setting")
            .field("base", &self.base)
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}

impl Setting {
    /// With the variables that the config itself sees: the environment and, below it, those of `.env`.
    pub fn of_base(base: &Path, dotenv: HashMap<String, String>) -> Self {
        Self::new(base, move |name| std::env::var(name).ok().or_else(|| dotenv.get(name).cloned()))
    }

    pub fn new(
        base: impl Into<PathBuf>,
        variables: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        Self {
            base: base.into(),
            clock: Clock::default(),
            writable: Vec::new(),
            fleet_name: None,
            variables: Arc::new(variables),
        }
    }

    #[must_use]
    pub fn clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    #[must_use]
    pub fn written_by_agents(self, writable: Vec<PathBuf>) -> Self {
        Self { writable, ..self }
    }

    /// For a fleet of this name; one without is called as the folder of its config.
    #[must_use]
    pub fn named(self, fleet: Option<&str>) -> Self {
        let folder = self.base.file_name().map(|name| name.to_string_lossy().into_owned());
        let name = fleet.map(str::to_owned).or(folder);
        let fleet_name = name.map(|name| name.chars().filter(|sign| !sign.is_control()).take(100).collect());
        Self { fleet_name, ..self }
    }

    pub fn fleet_name(&self) -> Option<&str> {
        self.fleet_name.as_deref().filter(|name| !name.is_empty())
    }

    /// An environment variable; one that is set to nothing counts as not set.
    pub fn variable(&self, name: &str) -> Option<String> {
        (self.variables)(name).filter(|value| !value.is_empty())
    }
}

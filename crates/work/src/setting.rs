//! What a source may need from outside its config.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cowhand_system::clock::Clock;

/// From a name to a value.
type Variables = dyn Fn(&str) -> Option<String> + Send + Sync;

/// What a source may need from outside its config.
#[derive(Clone)]
pub struct SourceContext {
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
impl fmt::Debug for SourceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setting")
            .field("base", &self.base)
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}

impl SourceContext {
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

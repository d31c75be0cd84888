//! What a work source gets in addition to its config: a base directory, a clock, variables, the directories in which
//! sandboxed agents may write, and the name of the fleet.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cowhand_system::clock::Clock;

/// Lookup of a variable by name.
type Variables = dyn Fn(&str) -> Option<String> + Send + Sync;

/// Context that a source gets in addition to its config.
#[derive(Clone)]
pub struct SourceContext {
    /// Directory of the root file. Relative paths start in this directory.
    pub base: PathBuf,
    /// Clock that decides whether a claim has expired.
    pub clock: Clock,
    /// Directories in which sandboxed agents may write. A source does not follow links in these directories.
    pub writable: Vec<PathBuf>,
    /// Name of the fleet for people.
    fleet_name: Option<String>,
    variables: Arc<Variables>,
}

/// Leaves out the variables, because some are secret.
impl fmt::Debug for SourceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceContext")
            .field("base", &self.base)
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}

impl SourceContext {
    /// Creates a context with the variables of the environment and, with lower precedence, the variables of `.env`. An
    /// empty variable of the environment counts as not set.
    pub fn of_base(base: &Path, dotenv: HashMap<String, String>) -> Self {
        Self::of_variables(base, |name| std::env::var(name).ok(), dotenv)
    }

    fn of_variables(
        base: &Path,
        environment: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
        dotenv: HashMap<String, String>,
    ) -> Self {
        let is_set = |value: &String| !value.is_empty();
        Self::new(base, move |name| environment(name).filter(is_set).or_else(|| dotenv.get(name).cloned()))
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
    pub fn writable(self, writable: Vec<PathBuf>) -> Self {
        Self { writable, ..self }
    }

    /// Sets the name of the fleet, without control characters and cut to 100 characters. A fleet without a name is
    /// named after the folder of its config.
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

    /// Returns the value of a variable. An empty value counts as not set.
    pub fn variable(&self, name: &str) -> Option<String> {
        (self.variables)(name).filter(|value| !value.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_variable_counts_as_not_set() {
        let pairs = |pairs: &[(&str, &str)]| -> HashMap<String, String> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let environment = pairs(&[("BOTH", "outer"), ("EMPTY", ""), ("NOTHING", "")]);
        let dotenv = pairs(&[("BOTH", "inner"), ("EMPTY", "inner"), ("FILE", "inner"), ("NOTHING", "")]);
        let context =
            SourceContext::of_variables(Path::new(""), move |name| environment.get(name).cloned(), dotenv);
        for (name, expected) in [
            ("BOTH", Some("outer")),
            ("EMPTY", Some("inner")),
            ("FILE", Some("inner")),
            ("NOTHING", None),
            ("NOWHERE", None),
        ] {
            assert_eq!(context.variable(name).as_deref(), expected, "{name}");
        }
    }
}

//! Which sources there are: factories by name.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use cowhand_core::shape;
use cowhand_core::work::WorkItemId;

use super::setting::SourceContext;
use super::{WorkSource, WorkSourceError};

/// Makes a source of its config.
pub type SourceFactory =
    dyn Fn(&shape::WorkSource, &SourceContext) -> Result<Arc<dyn WorkSource>, WorkSourceError> + Send + Sync;

/// A value that whoever starts a fleet hands over, not one for the whole process: two fleets in one program, or two
/// tests, then cannot change each other's sources, and nothing depends on what was loaded first.
#[derive(Clone)]
pub struct SourceRegistry {
    factories: BTreeMap<String, Arc<SourceFactory>>,
}

impl fmt::Debug for SourceRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Registry").field(&self.registered()).finish()
    }
}

impl SourceRegistry {
    pub fn empty() -> Self {
        Self { factories: BTreeMap::new() }
    }

    /// Registers a source under a name that is still free. A name that is taken keeps its source.
    pub(crate) fn register_if_free(&mut self, name: &str, factory: Arc<SourceFactory>) {
        self.factories.entry(name.to_owned()).or_insert(factory);
    }

    /// Under the name that `{type: custom, name: …}` uses and with which the ids of its items begin.
    pub fn register(
        &mut self,
        name: &str,
        factory: impl Fn(&shape::WorkSource, &SourceContext) -> Result<Arc<dyn WorkSource>, WorkSourceError>
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
        setting: &SourceContext,
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

//! The registry of sources: factories by name.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use cowhand_core::work::WorkItemId;
use cowhand_core::work_source::ConfiguredSource;

use super::context::SourceContext;
use super::{WorkSource, WorkSourceError};

/// Function that creates a source from its config.
pub type SourceFactory =
    dyn Fn(&ConfiguredSource, &SourceContext) -> Result<Arc<dyn WorkSource>, WorkSourceError> + Send + Sync;

/// Registry of sources. The caller passes a registry to each fleet. The registry is not global, so two fleets in one
/// program, or two tests, cannot change each other's sources.
#[derive(Clone)]
pub struct SourceRegistry {
    factories: BTreeMap<String, Arc<SourceFactory>>,
}

impl fmt::Debug for SourceRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SourceRegistry").field(&self.registered()).finish()
    }
}

impl SourceRegistry {
    pub fn empty() -> Self {
        Self { factories: BTreeMap::new() }
    }

    /// Registers a source unless the name is taken.
    pub(crate) fn register_if_free(&mut self, name: &str, factory: Arc<SourceFactory>) {
        self.factories.entry(name.to_owned()).or_insert(factory);
    }

    /// Registers a source under a name. The config names the source with `{type: custom, name: …}`, and the ids of its
    /// items begin with the name.
    pub fn register(
        &mut self,
        name: &str,
        factory: impl Fn(&ConfiguredSource, &SourceContext) -> Result<Arc<dyn WorkSource>, WorkSourceError>
        + Send
        + Sync
        + 'static,
    ) -> Result<(), WorkSourceError> {
        if WorkItemId::new(name, "1").is_err() {
            let message =
                format!("{name:?} is not a valid name for a work source; use letters, digits and '_'");
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
        config: &ConfiguredSource,
        context: &SourceContext,
    ) -> Result<Arc<dyn WorkSource>, WorkSourceError> {
        let Some(factory) = self.factories.get(config.name()) else {
            return Err(WorkSourceError::Unknown {
                name: config.name().to_owned(),
                available: self.registered().iter().map(|name| (*name).to_owned()).collect(),
            });
        };
        factory(config, context)
    }

    pub fn is_registered(&self, name: &str) -> bool {
        self.factories.contains_key(name)
    }

    /// Returns all names in alphabetical order.
    pub fn registered(&self) -> Vec<&str> {
        self.factories.keys().map(String::as_str).collect()
    }

    /// Removes a source and returns whether it existed.
    pub fn unregister(&mut self, name: &str) -> bool {
        self.factories.remove(name).is_some()
    }

    pub fn clear(&mut self) {
        self.factories.clear();
    }
}

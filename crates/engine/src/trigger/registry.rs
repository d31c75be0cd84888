//! Trigger types that a program built on cowhand adds.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::strategy::{FatalTriggerError, TriggerStrategy};
use super::strategy_context::StrategyContext;

/// Function that makes the strategy of one schedule. It is called again when the schedule needs a new strategy, for
/// example after a panic of the strategy, or after the schedule was armed again.
pub type Factory = dyn Fn(&StrategyContext) -> anyhow::Result<Box<dyn TriggerStrategy>> + Send + Sync;

/// Factories by the name that `{type: custom, name: …}` uses. The caller passes a registry to each fleet, so that two
/// fleets in one program do not change each other's types.
#[derive(Clone, Default)]
pub struct Registry {
    factories: BTreeMap<String, Arc<Factory>>,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Registry").field(&self.registered()).finish()
    }
}

impl Registry {
    /// Adds a factory, and replaces an earlier factory with the same name.
    #[must_use]
    pub fn with(
        mut self,
        name: impl Into<String>,
        factory: impl Fn(&StrategyContext) -> anyhow::Result<Box<dyn TriggerStrategy>> + Send + Sync + 'static,
    ) -> Self {
        self.factories.insert(name.into(), Arc::new(factory));
        self
    }

    /// Returns all names in alphabetical order.
    pub fn registered(&self) -> Vec<&str> {
        self.factories.keys().map(String::as_str).collect()
    }

    pub(super) fn create(
        &self,
        name: &str,
        context: &StrategyContext,
    ) -> anyhow::Result<Box<dyn TriggerStrategy>> {
        match self.factories.get(name) {
            Some(factory) => factory(context),
            None => Err(FatalTriggerError(self.unknown(name).unwrap_or_default()).into()),
        }
    }

    /// Explains that no trigger of this name is registered; `None` if there is one.
    pub(crate) fn unknown(&self, name: &str) -> Option<String> {
        if self.factories.contains_key(name) {
            return None;
        }
        let known = if self.factories.is_empty() { "none" } else { &self.registered().join(", ") };
        Some(format!(
            "no trigger is registered under the name {name:?}; registered: {known}; a program with the cowhand library \
             registers triggers, and has to run this fleet"
        ))
    }
}

//! Types that a program built on cowhand brings along.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::setting::Setting;
use super::strategy::{FatalTriggerError, TriggerStrategy};

/// Makes the strategy of one schedule. Called again when that has panicked or its trigger has changed.
pub type Factory = dyn Fn(&Setting) -> anyhow::Result<Box<dyn TriggerStrategy>> + Send + Sync;

/// Factories by the name that `{type: custom, name: …}` uses. A value that whoever starts a fleet hands over, so that
/// two fleets in one program do not change each other's types.
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
    /// The last one under a name counts.
    #[must_use]
    pub fn with(
        mut self,
        name: impl Into<String>,
        factory: impl Fn(&Setting) -> anyhow::Result<Box<dyn TriggerStrategy>> + Send + Sync + 'static,
    ) -> Self {
        self.factories.insert(name.into(), Arc::new(factory));
        self
    }

    /// All names, in the order of the alphabet.
    pub fn registered(&self) -> Vec<&str> {
        self.factories.keys().map(String::as_str).collect()
    }

    pub(super) fn create(&self, name: &str, setting: &Setting) -> anyhow::Result<Box<dyn TriggerStrategy>> {
        let Some(factory) = self.factories.get(name) else {
            let known = if self.factories.is_empty() { "none" } else { &self.registered().join(", ") };
            let message = format!("no trigger is registered under the name {name:?}; there is {known}");
            return Err(FatalTriggerError(message).into());
        };
        factory(setting)
    }
}

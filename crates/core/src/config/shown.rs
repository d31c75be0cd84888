//! The merged config as it is shown to people.

use std::sync::Arc;

use serde_json::Value as Json;

/// The merged config with its secrets masked. The agents are kept as text, because their trees use several times as
/// much memory. The agents of a kept fleet share their texts with the config of the previous load.
#[derive(Debug, Clone, Default)]
pub struct ShownConfig {
    fleet: Json,
    agents: Vec<Arc<str>>,
}

impl ShownConfig {
    /// Creates the shown config. `fleet` has the keys of the root file without `agents`, and `agents` the JSON text of
    /// each agent.
    pub fn new(fleet: Json, agents: Vec<Arc<str>>) -> Self {
        Self { fleet, agents }
    }

    /// Returns the config as JSON.
    pub fn value(&self) -> Json {
        let mut value = self.fleet.clone();
        value["agents"] = self.agents.iter().map(|agent| read(agent)).collect();
        value
    }

    /// Returns the parts of the config that can have a key with this ending: the keys of the root file, and agents.
    pub fn parts_with_key_ending(&self, ending: &str) -> impl Iterator<Item = Json> {
        // In JSON, the quotation mark after the key follows its ending.
        let ending = format!("{ending}\"");
        let agents = self.agents.iter().filter(move |agent| agent.contains(&ending)).map(|agent| read(agent));
        std::iter::once(self.fleet.clone()).chain(agents)
    }
}

fn read(agent: &str) -> Json {
    serde_json::from_str(agent).unwrap_or_default()
}

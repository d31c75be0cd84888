//! The config keys whose changes take effect only at the next start of the daemon.

use cowhand_core::roster::Roster;
use cowhand_core::server::ServerConfig;
use cowhand_core::traces::TracesConfig;

/// Values of these keys at the start of the daemon.
#[derive(Debug)]
pub(super) struct StartSettings {
    store: Option<String>,
    server: ServerConfig,
    traces: Option<TracesConfig>,
}

impl StartSettings {
    pub(super) fn of(roster: &Roster) -> Self {
        Self { store: roster.store.clone(), server: roster.server.clone(), traces: roster.traces.clone() }
    }

    pub(super) fn store_changes(&self, roster: &Roster) -> bool {
        self.store != roster.store
    }

    /// Returns a note for each of these keys that the roster changes.
    pub(super) fn changes(&self, roster: &Roster) -> Vec<String> {
        let keys = [
            ("store", self.store_changes(roster)),
            ("server", self.server != roster.server),
            ("traces", self.traces != roster.traces),
        ];
        let changed = keys.into_iter().filter(|(_, is_changed)| *is_changed);
        changed
            .map(|(key, _)| format!("`{key}` has changed; the change takes effect at the next start"))
            .collect()
    }
}

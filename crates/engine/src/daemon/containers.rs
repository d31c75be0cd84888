//! Containers that nobody watches over: of attempts whose keeper, and whoever else could have ended them, was killed.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use cowhand_core::roster::{Agent, Roster};
use cowhand_core::sandbox::SandboxKind;
use tracing::{info, warn};

use crate::context::Engine;
use cowhand_run::sandbox::docker::{self, leftover};
use cowhand_run::supervision::is_watched;

/// A fleet without containers asks no engine.
pub(super) async fn sweep(engine: Arc<Engine>) {
    let loaded = engine.loaded();
    // By its real name, as containers are labelled with it.
    let state = engine.home.state.path();
    let state = state.canonicalize().unwrap_or_else(|_| state.to_owned());
    for socket in sockets(&loaded.roster) {
        match leftover::sweep(&socket, &state, is_watched).await {
            Ok(0) => {}
            Ok(ended) => info!(ended, "removed containers that nobody watched over"),
            Err(why) => warn!("cannot look for containers that were left: {why}"),
        }
    }
}

fn sockets(roster: &Roster) -> BTreeSet<PathBuf> {
    let asked = roster.agents.iter().flat_map(Agent::sandboxes);
    let asked = asked.filter(|asked| asked.kind == SandboxKind::Docker);
    asked.filter_map(|asked| docker::socket(&asked.container).ok()).collect()
}

//! Removes containers without supervision: those of attempts with a keeper that was killed, as was everything else that
//! could have ended them.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use cowhand_core::roster::{Agent, Roster};
use cowhand_core::sandbox::SandboxKind;
use tracing::{info, warn};

use crate::context::Engine;
use cowhand_run::sandbox::docker::{self, leftover};
use cowhand_run::supervision::is_watched;

/// Removes them. A fleet without containers does not contact a container engine.
pub(super) async fn sweep(engine: Arc<Engine>) {
    let loaded = engine.loaded();
    // Containers are labelled with the canonical path.
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

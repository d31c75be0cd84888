//! Removes containers of attempts that no longer run. Such a container is left if the keeper of the attempt is killed
//! together with all other processes that would have ended the container.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use cowhand_core::roster::{Agent, Roster};
use cowhand_core::sandbox::SandboxKind;
use tracing::{info, warn};

use crate::context::Engine;
use cowhand_run::sandbox::docker::{self, leftover};
use cowhand_run::supervision::is_running;

/// Removes containers of attempts that no longer run. A fleet without Docker sandboxes does not contact a container
/// engine.
pub(super) async fn sweep(engine: Arc<Engine>) {
    let loaded = engine.loaded();
    // Containers are labelled with the canonical path of the state folder.
    let state = engine.home.state.path();
    let state = state.canonicalize().unwrap_or_else(|_| state.to_owned());
    for socket in sockets(&loaded.roster) {
        match leftover::sweep(&socket, &state, is_running).await {
            Ok(0) => {}
            Ok(ended) => info!(ended, "removed containers of attempts that no longer run"),
            Err(why) => warn!("cannot list the containers of attempts that no longer run: {why}"),
        }
    }
}

fn sockets(roster: &Roster) -> BTreeSet<PathBuf> {
    let sandboxes = roster.agents.iter().flat_map(Agent::sandboxes);
    let sandboxes = sandboxes.filter(|sandbox| sandbox.kind == SandboxKind::Docker);
    sandboxes.filter_map(|sandbox| docker::socket(&sandbox.container).ok()).collect()
}

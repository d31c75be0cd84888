//! The clocks of the machine: the periods in which a daemon watched them, their steps, and suspensions.

use std::path::Path;
use std::time::Duration;

use cowhand_core::duration;
use cowhand_core::uptime::{ClockReading, Uptime};
use jiff::SignedDuration;
use tokio::time::Instant;
use tracing::{info, warn};

use super::Daemon;
use crate::error::FleetError;
use crate::state::StateFolder;
use cowhand_store::{NodeJoined, NodePresence, Store};

/// Time in which the database server has to notice that the previous daemon of a node has ended.
const PREDECESSOR_TIMEOUT: Duration = Duration::from_secs(5);
const PREDECESSOR_POLL: Duration = Duration::from_millis(100);

/// Records the start of the daemon. Due times after the start of the oldest daemon of the fleet that still runs do not
/// count as missed.
pub(super) async fn begin(
    store: &Store,
    node: &str,
    folder: &Path,
    reading: ClockReading,
) -> Result<(Uptime, NodePresence), FleetError> {
    let presence = announce(store, node, folder).await?;
    let NodeJoined { step, others_since } = store.join(node.to_owned(), reading.now.wall).await?;
    if let Some(step) = step {
        log_clock_step(step);
    }
    let mut uptime = Uptime::since(reading.now);
    uptime.observe(reading);
    if let Some(since) = others_since {
        uptime.add_daemon(since, reading.now);
    }
    Ok((uptime, presence))
}

/// Returns an error if another daemon runs with the node name of this state folder and the same store. Call it only if
/// no daemon of the folder runs.
pub async fn refuse_taken_node(store: &Store, state: &StateFolder) -> Result<(), FleetError> {
    match state.known_node() {
        Some(node) => announce(store, &node, state.path()).await.map(drop),
        None => Ok(()),
    }
}

/// Announces this node. Fails if another daemon has announced the same node, because both would settle the same jobs.
/// The database server may need a moment to notice that the previous daemon of this folder has ended.
async fn announce(store: &Store, node: &str, folder: &Path) -> Result<NodePresence, FleetError> {
    let give_up_at = Instant::now() + PREDECESSOR_TIMEOUT;
    let mut presence = store.announce_node(node).await?;
    while !presence.is_held() {
        if Instant::now() >= give_up_at {
            return Err(FleetError::NodeTaken { folder: folder.display().to_string() });
        }
        tokio::time::sleep(PREDECESSOR_POLL).await;
        if !presence.is_connected().await {
            presence = store.announce_node(node).await?;
        }
    }
    Ok(presence)
}

impl Daemon {
    /// Notices steps of the wall clock and suspensions of the machine, and records each step once.
    pub(super) async fn watch_clock(&mut self, reading: ClockReading) {
        let changes = self.uptime.observe(reading);
        let (store, node) = (&self.engine.store, self.engine.home.node.clone());
        if let Some(step) = changes.step {
            log_clock_step(step);
            if let Err(error) = store.clock_stepped(node.clone(), step, reading.now.wall).await {
                warn!("cannot record the step of the clock: {error}");
            }
            // After a step, waiting deliveries and hooks may be due, or may wait too long.
            self.engine.outbox.notify_one();
            self.engine.hooks.notify_one();
        }
        if let Some(time) = changes.suspended {
            info!("the machine was suspended for {}", duration::rounded(time));
        }
        if changes.step.is_some() || changes.suspended.is_some() {
            self.agenda.plan_all();
            match store.others_since(node).await {
                Ok(Some(since)) => self.uptime.add_daemon(since, reading.now),
                Ok(None) => {}
                Err(error) => warn!("cannot check whether other nodes watched the clock: {error}"),
            }
        }
        self.renew_presence().await;
    }

    /// Registers this node in the database again if the database was restarted or the connection to it was lost.
    async fn renew_presence(&mut self) {
        if self.presence.is_connected().await {
            return;
        }
        match self.engine.store.announce_node(&self.engine.home.node).await {
            Ok(presence) => self.presence = presence,
            Err(error) => warn!("cannot announce to other nodes that this node runs: {error}"),
        }
    }
}

fn log_clock_step(step: SignedDuration) {
    let time = duration::rounded(step.abs());
    let direction = if step.is_negative() { "back" } else { "forward" };
    warn!(
        "the wall clock was set {direction} by {time}; intervals and timeouts are not affected, cron times follow \
         the new time"
    );
}

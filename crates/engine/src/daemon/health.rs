//! Watches the disk of the state folder and the other nodes, and records events about them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::warn;

use crate::context::Engine;
use cowhand_store::{StoreError, WatchedNode};
use cowhand_system::blocking::run_blocking;
use cowhand_system::disk;

const WATCH_EVERY: Duration = Duration::from_secs(10);
/// Time for which a node has to be missing before it counts as lost. In this time, its daemon can restart, or connect
/// to the database again. It is as long as the lease of a job.
const LOST_AFTER: Duration = Duration::from_secs(30);

pub(super) async fn watch_health(engine: Arc<Engine>) {
    let (mut missing, mut was_low) = (MissingNodes::default(), None);
    loop {
        // Only notifications need these events.
        if engine.loaded().roster.notifications.is_on() {
            if let Err(error) = watch_disk(&engine, &mut was_low).await {
                warn!("cannot record the free space of the disk: {error}");
            }
            if let Err(error) = watch_nodes(&engine, &mut missing).await {
                warn!("cannot check the other nodes: {error}");
            }
        }
        tokio::select! {
            () = tokio::time::sleep(WATCH_EVERY) => {}
            () = engine.health.notified() => {}
        }
    }
}

/// Records whether the disk has little free space. `was_low` is the recorded state, as far as this daemon knows it.
async fn watch_disk(engine: &Engine, was_low: &mut Option<bool>) -> Result<(), StoreError> {
    let folder = engine.home.state.path().to_owned();
    let free = match run_blocking(move || disk::free_space(&folder)).await {
        Ok(free) => free,
        Err(error) => {
            warn!("the free space of the disk is not known: {error}");
            return Ok(());
        }
    };
    let limit = engine.loaded().roster.notifications.disk_low;
    let is_low = free < limit;
    if *was_low != Some(is_low) {
        engine.store.record_free_space(engine.home.node.clone(), free, limit, engine.clock.now()).await?;
        *was_low = Some(is_low);
    }
    Ok(())
}

async fn watch_nodes(engine: &Engine, missing: &mut MissingNodes) -> Result<(), StoreError> {
    let nodes = engine.store.watched_nodes(engine.home.node.clone()).await?;
    for (node, is_lost) in missing.changes(nodes, Instant::now()) {
        engine.store.record_node_lost(node, is_lost, engine.clock.now()).await?;
    }
    Ok(())
}

/// The nodes whose daemon does not run, with the time at which this daemon noticed that.
#[derive(Debug, Default)]
struct MissingNodes(HashMap<String, Instant>);

impl MissingNodes {
    /// Returns the nodes that are lost now (true), or have returned (false).
    fn changes(&mut self, nodes: Vec<WatchedNode>, now: Instant) -> Vec<(String, bool)> {
        self.0.retain(|name, _| nodes.iter().any(|node| node.name == *name && !node.is_running));
        let mut changes = Vec::new();
        for WatchedNode { name, is_running, is_lost } in nodes {
            if is_running {
                changes.extend(is_lost.then_some((name, false)));
                continue;
            }
            let since = *self.0.entry(name.clone()).or_insert(now);
            if !is_lost && now.duration_since(since) >= LOST_AFTER {
                changes.push((name, true));
            }
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_lost_after_it_was_missing_for_some_time() {
        let (mut missing, start) = (MissingNodes::default(), Instant::now());
        let mut look = |second: u64, is_running: bool, is_lost: bool| {
            let node = WatchedNode { name: "n".to_owned(), is_running, is_lost };
            missing.changes(vec![node], start + Duration::from_secs(second))
        };
        assert_eq!(look(0, false, false), []);
        assert_eq!(look(29, false, false), []);
        assert_eq!(look(30, true, false), []);
        assert_eq!(look(40, false, false), [], "it ran meanwhile");
        assert_eq!(look(70, false, false), [("n".to_owned(), true)]);
        assert_eq!(look(80, false, true), []);
        assert_eq!(look(90, true, true), [("n".to_owned(), false)]);
    }
}

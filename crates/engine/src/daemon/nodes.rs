//! Reports this node to the other nodes, and follows what they report. On SQLite there are no other nodes: the node
//! reports itself at its start and when its report changes, and an idle fleet writes nothing.

use std::sync::Arc;
use std::time::Duration;

use cowhand_core::node::{FleetNode, NodeLimits, NodeReport, nodes_with_other_config};
use cowhand_core::plan::PlanningNode;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{info, warn};

use crate::context::Engine;
use crate::doctor;
use crate::loaded::Loaded;
use cowhand_store::StoreError;
use cowhand_system::blocking::run_blocking;

/// Time between two reads of the nodes if nothing happens.
const READ_NODES_EVERY: Duration = Duration::from_secs(5);
/// Shortest time between two reads of the nodes.
const MIN_READ_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two records that this node runs.
const NODE_SEEN_EVERY: Duration = Duration::from_secs(15);
/// Time between two checks of agents that this node cannot run.
const CHECK_UNABLE_EVERY: Duration = Duration::from_secs(30);

/// Follows the nodes while the daemon runs.
#[derive(Debug)]
pub(super) struct NodeWatch {
    engine: Arc<Engine>,
    /// The config and the report that were last reported; `None` before the first report.
    reported: Option<(Arc<Loaded>, NodeReport)>,
    seen_at: Instant,
    checked_at: Instant,
    /// Number of the newest event that was seen.
    newest_event: i64,
    planning_node: PlanningNode,
    /// Running nodes with another config.
    differing: Vec<String>,
    has_failed: bool,
}

impl NodeWatch {
    /// Reports this node and reads the nodes, before the daemon starts its first job.
    pub(super) async fn start(engine: &Arc<Engine>) -> Result<Self, StoreError> {
        let mut watch = Self::new(Arc::clone(engine));
        watch.try_update().await?;
        Ok(watch)
    }

    /// Follows the nodes. Never returns.
    pub(super) async fn follow(mut self) {
        loop {
            self.wait().await;
            self.update().await;
        }
    }

    pub(super) fn new(engine: Arc<Engine>) -> Self {
        let (now, newest_event) = (Instant::now(), engine.store.committed());
        Self {
            engine,
            reported: None,
            seen_at: now,
            checked_at: now,
            newest_event,
            planning_node: PlanningNode::default(),
            differing: Vec::new(),
            has_failed: false,
        }
    }

    /// Waits until the nodes may have changed. Events of other nodes also wake the daemon loop, because jobs may have
    /// been created for this node.
    async fn wait(&mut self) {
        let earliest = Instant::now() + MIN_READ_INTERVAL;
        let refresh = self.engine.nodes.refresh.notified();
        if !self.engine.store.is_shared() {
            let is_unable = self.reported.as_ref().is_some_and(|(_, report)| !report.unable.is_empty());
            tokio::select! {
                () = refresh => {}
                () = sleep(CHECK_UNABLE_EVERY), if is_unable => {}
            }
            return;
        }
        tokio::select! {
            () = refresh => {}
            () = sleep(READ_NODES_EVERY) => {}
            () = self.engine.store.changed(self.newest_event) => {
                self.newest_event = self.engine.store.committed();
                self.engine.nudge.notify_one();
                tokio::select! {
                    () = sleep_until(earliest) => {}
                    () = self.engine.nodes.refresh.notified() => {}
                }
            }
        }
    }

    /// Reports this node if that is due, and reads the nodes. An outage of the database is logged once.
    async fn update(&mut self) {
        match self.try_update().await {
            Ok(()) => self.has_failed = false,
            Err(error) if !self.has_failed => {
                warn!("cannot read the nodes of the fleet: {error}");
                self.has_failed = true;
            }
            Err(_) => {}
        }
    }

    async fn try_update(&mut self) -> Result<(), StoreError> {
        self.report().await?;
        let nodes = self.engine.store.nodes().await?;
        self.follow_other_configs(&nodes).await?;
        self.engine.nodes.set(nodes);
        let planning_node =
            self.engine.nodes.planning_node(&self.engine.home.node, &self.engine.loaded().roster);
        if planning_node != self.planning_node {
            self.planning_node = planning_node;
            self.engine.replan_all();
        }
        Ok(())
    }

    /// Reports this node if the config or its abilities have changed; otherwise records from time to time that it runs.
    async fn report(&mut self) -> Result<(), StoreError> {
        let (engine, loaded) = (&self.engine, self.engine.loaded());
        let (node, now) = (engine.home.node.clone(), engine.clock.now());
        let is_current = self.reported.as_ref().is_some_and(|(last, report)| {
            let is_check_due = !report.unable.is_empty() && self.checked_at.elapsed() >= CHECK_UNABLE_EVERY;
            Arc::ptr_eq(last, &loaded) && !is_check_due
        });
        if !is_current {
            let report = report_of(engine, &loaded).await;
            self.checked_at = Instant::now();
            if self
                .reported
                .as_ref()
                .is_none_or(|(last, before)| !Arc::ptr_eq(last, &loaded) || *before != report)
            {
                let limits = NodeLimits::of(&loaded.configured);
                engine.store.report_node(node, report.clone(), limits, now).await?;
                self.seen_at = Instant::now();
            }
            self.reported = Some((loaded, report));
        } else if engine.store.is_shared() && self.seen_at.elapsed() >= NODE_SEEN_EVERY {
            engine.store.node_seen(node, now).await?;
            self.seen_at = Instant::now();
        }
        Ok(())
    }

    /// Lets the stricter limits hold while another node runs with another config. Logs the difference once.
    async fn follow_other_configs(&mut self, nodes: &[FleetNode]) -> Result<(), StoreError> {
        let loaded = self.engine.loaded();
        let others = nodes_with_other_config(loaded.config_digest.as_deref(), nodes);
        let others = others.filter(|node| node.name != self.engine.home.node);
        let differing: Vec<String> = others.map(|node| node.name.clone()).collect();
        let limits = if differing.is_empty() {
            Vec::new()
        } else {
            self.engine.store.limits_of_nodes(&differing).await?
        };
        if self.engine.nodes.set_stricter(limits) {
            self.engine.restrict_roster();
            // The report is of the config, which has not changed.
            if let Some((reported, _)) = &mut self.reported
                && Arc::ptr_eq(reported, &loaded)
            {
                *reported = self.engine.loaded();
            }
            self.engine.replan_all();
        }
        if differing != self.differing {
            if differing.is_empty() {
                info!("all running nodes have the same config again");
            } else {
                warn!("{}", other_config_sentence(&differing));
            }
            self.differing = differing;
        }
        Ok(())
    }
}

/// Describes that nodes run another config.
pub fn other_config_sentence(nodes: &[String]) -> String {
    let (who, verb) = match nodes {
        [only] => (format!("the node {only}"), "runs"),
        all => (format!("the nodes {}", all.join(", ")), "run"),
    };
    format!(
        "{who} {verb} another config than this node; until all nodes run the same config, the lower of the limits on \
         running jobs holds; `cowhand nodes` shows the digests of the configs"
    )
}

/// Makes the report of this node.
async fn report_of(engine: &Engine, loaded: &Arc<Loaded>) -> NodeReport {
    let options = &engine.nodes.options;
    let checked = Arc::clone(loaded);
    NodeReport {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        labels: options.labels.clone(),
        capacity: options.capacity,
        processors: std::thread::available_parallelism()
            .map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX)),
        config: loaded.config_digest.clone(),
        unable: run_blocking(move || doctor::unable(&checked)).await,
    }
}

//! The daemon itself: its state, reload and stop.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use cowhand_core::event::Fact;
use cowhand_core::provider::Parked;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing::warn;

use super::agents::{self, AgentView};
use super::extract::{Count, Given};
use super::waits::GoneAgent;
use super::{Api, ApiProblem, providers};
use cowhand_engine::fleet::{FleetStatus, Reloaded, Stop, Unready};
use cowhand_engine::queues::given_up::{GivenUpItem, given_up};
use cowhand_engine::queues::skipped_files::{SkippedFiles, skipped_files};
use cowhand_engine::queues::{UntoldItem, untold};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Status")]
pub struct StatusView {
    pub daemon: DaemonView,
    pub agents: Vec<AgentView>,
    /// Number of running jobs of all agents.
    #[serde(default)]
    pub running: usize,
    /// Number of waiting jobs, including those of agents that are no longer in the config.
    #[serde(default)]
    pub queued: usize,
    /// Number of open asks.
    #[serde(default)]
    pub asks: usize,
    /// Providers that currently take no jobs.
    #[serde(default)]
    pub parked: Vec<Parked>,
    /// Work items that no agent takes before a person acts.
    #[serde(default)]
    pub given_up: Vec<GivenUpItem>,
    /// Results of work that their source has not received yet; cowhand retries.
    #[serde(default)]
    pub untold: Vec<UntoldItem>,
    /// Agents that are no longer in the config and have jobs that have not ended.
    #[serde(default)]
    pub gone: Vec<GoneAgent>,
    /// Folders of work sources with files that are no items.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped_files: Vec<SkippedFiles>,
}

/// State of the daemon. Without a daemon, only `running` is meaningful.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct DaemonView {
    pub running: bool,
    pub stopping: bool,
    pub pid: Option<u32>,
    /// URL of the server, if it has one.
    pub url: Option<String>,
    pub started_at: Option<Timestamp>,
    pub node: Option<String>,
    pub version: Option<String>,
    /// Time since which the config on disk has errors, so that the previous one is in force. The errors are
    /// only for those who may read the config.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_refused_at: Option<Timestamp>,
    /// Reason why nothing can be written, if so, with the remedy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_problem: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StopAsked {
    /// Leave agents running; the next start takes them up again.
    pub keep_agents: bool,
    /// Time for jobs to finish before they are cancelled, in seconds; unset means 30.
    pub timeout_seconds: Option<u64>,
}

pub(super) async fn status(State(api): State<Api>) -> Result<Json<StatusView>, ApiProblem> {
    let now = api.now();
    let asks = api.store.open_asks(Count::MAX_COUNT).await?.iter().filter(|ask| ask.is_open(now)).count();
    let parked = providers::parked(&api).await?;
    let given_up = given_up(&api.store, &api.roster(), api.sources().setting()).await?;
    let untold = untold(&api.store, now).await?;
    let skipped_files = skipped_files(&api.sources(), &api.roster()).await;
    let (agents, agents::AgentCounts { running, queued, gone }) = agents::views_and_counts(&api).await?;
    let daemon = DaemonView { store_problem: store_problem(&api).await, ..view(&api) };
    Ok(Json(StatusView {
        daemon,
        agents,
        running,
        queued,
        asks,
        parked,
        given_up,
        untold,
        gone,
        skipped_files,
    }))
}

/// Returns the problem that `/readyz` finds, with known details.
async fn store_problem(api: &Api) -> Option<String> {
    let unready = api.daemon().ok()?.ready().await.err().filter(|unready| *unready != Unready::Stopping);
    let known = api.store.trouble();
    known.or_else(|| unready.map(|unready| format!("{unready}; is the disk full, or read-only?")))
}

pub(super) async fn reload(State(api): State<Api>) -> Result<Json<Reloaded>, ApiProblem> {
    Ok(Json(api.daemon()?.reload().await?))
}

/// How long it may take to write down that the fleet is asked to stop.
const RECORD_STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Answers at once; the daemon is gone when its lock is free.
pub(super) async fn stop(
    State(api): State<Api>,
    Given(asked): Given<StopAsked>,
) -> Result<Json<DaemonView>, ApiProblem> {
    let daemon = api.daemon()?;
    // Whoever wants it to end is not kept from it by a store that cannot be written.
    let noted = api.store.note(Fact::FleetStopping { keep_agents: asked.keep_agents }, api.now());
    match tokio::time::timeout(RECORD_STOP_TIMEOUT, noted).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => warn!("that the fleet is asked to stop is not written: {error}"),
        Err(_) => warn!("that the fleet is asked to stop is not written: the store does not answer"),
    }
    daemon.begin_stop(match asked {
        StopAsked { keep_agents: true, .. } => Stop::KeepAgents,
        StopAsked { timeout_seconds: Some(seconds), .. } => {
            Stop::Finish { timeout: Duration::from_secs(seconds) }
        }
        StopAsked { timeout_seconds: None, .. } => Stop::default(),
    });
    Ok(Json(view(&api)))
}

fn view(api: &Api) -> DaemonView {
    let Ok(daemon) = api.daemon() else { return DaemonView::default() };
    DaemonView {
        running: true,
        stopping: daemon.status() != FleetStatus::Running,
        pid: Some(std::process::id()),
        url: api.url.clone(),
        started_at: Some(daemon.state().started_at),
        node: Some(daemon.node().to_owned()),
        version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        config_refused_at: daemon.config_refused_at(),
        store_problem: None,
    }
}

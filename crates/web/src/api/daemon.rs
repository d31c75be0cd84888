//! The daemon itself: its state, reload and stop.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use cowhand_core::ask::AskState;
use cowhand_core::event::Fact;
use cowhand_core::provider::Parked;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing::warn;

use super::agents::{self, AgentView};
use super::extract::{Count, JsonBody};
use super::leases::LostLease;
use super::nodes::{self, NodeStateView, NodeView};
use super::provider_usage::ProviderUsage;
use super::waits::{RemovedAgent, RemovedSchedule};
use super::{Api, ApiProblem, providers};
use cowhand_engine::chat::{ChatBotView, chat_bots};
use cowhand_engine::fleet::{FleetStatus, Reloaded, Stop, Unready};
use cowhand_engine::notification::view::{UndeliveredTarget, undelivered_targets};
use cowhand_engine::queues::given_up::{GivenUpItem, given_up};
use cowhand_engine::queues::skipped_files::{SkippedFiles, skipped_files};
use cowhand_engine::queues::{UndeliveredItem, undelivered};
use cowhand_engine::unfinished::UnfinishedWorkspace;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Status")]
pub struct StatusView {
    pub daemon: DaemonView,
    pub agents: Vec<AgentView>,
    /// Number of running jobs of all agents.
    #[serde(default)]
    pub running: usize,
    /// Number of jobs whose attempt has ended or never began, while no daemon runs that writes this. The next start ends
    /// or continues them. They do not count as running.
    #[serde(default)]
    pub unsettled: usize,
    /// Number of waiting jobs, including those of agents that are no longer in the config.
    #[serde(default)]
    pub queued: usize,
    /// Number of open asks.
    #[serde(default)]
    pub asks: usize,
    /// Number of messages to jobs that wait.
    #[serde(default)]
    pub messages: usize,
    /// Providers that currently take no jobs.
    #[serde(default)]
    pub parked: Vec<Parked>,
    /// Running jobs whose nodes have not renewed their leases in time.
    #[serde(default)]
    pub lost_leases: Vec<LostLease>,
    /// Providers with a reserve, or with usage windows that the programs of their agents have reported.
    #[serde(default)]
    pub provider_usage: Vec<ProviderUsage>,
    /// Work items that no agent takes before a person acts.
    #[serde(default)]
    pub given_up: Vec<GivenUpItem>,
    /// Results whose work source has not received them yet; cowhand tries again.
    #[serde(default)]
    pub untold: Vec<UndeliveredItem>,
    /// Agents that are no longer in the config and have jobs that have not ended, or firings without a job.
    #[serde(default)]
    pub gone: Vec<RemovedAgent>,
    /// Schedules that are no longer in the config and for which jobs or accepted firings wait.
    #[serde(default)]
    pub gone_schedules: Vec<RemovedSchedule>,
    /// Folders of work sources with files that are not work items.
    #[serde(default)]
    pub skipped_files: Vec<SkippedFiles>,
    /// Workspaces of ended jobs whose diff could not be made yet, or whose commits could not be stored yet; the daemon
    /// tries again. Empty without a daemon.
    #[serde(default)]
    pub unfinished_workspaces: Vec<UnfinishedWorkspace>,
    /// Bots on chat platforms that the agents use, with the states of their connections.
    #[serde(default)]
    pub chat_bots: Vec<ChatBotView>,
    /// Notification targets whose last notifications could not be delivered.
    #[serde(default)]
    pub undelivered_notifications: Vec<UndeliveredTarget>,
}

/// State of the daemon. Without a daemon, only `running` is meaningful.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[expect(clippy::struct_excessive_bools, reason = "each is a field of the answer")]
pub struct DaemonView {
    pub running: bool,
    pub stopping: bool,
    pub pid: Option<u32>,
    /// URL of the server, if it has one.
    pub url: Option<String>,
    pub started_at: Option<Timestamp>,
    pub node: Option<String>,
    pub version: Option<String>,
    /// Time since which the daemon refuses the config because of errors, or because its file is missing. The previous
    /// config stays in use. The answer to a reload states the errors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_refused_at: Option<Timestamp>,
    /// True if the config was refused because its file does not exist.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub config_missing: bool,
    /// True if `store` of the config was changed after the daemon had started. The daemon still uses the former store.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub store_changed: bool,
    /// Reason why the last reload kept the old certificate of the server; absent if it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_problem: Option<String>,
    /// Reason why the store cannot be written, with the remedy; absent if it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_problem: Option<String>,
    /// Time since which this node takes no new jobs; absent if it takes jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drained_at: Option<Timestamp>,
    /// Running nodes whose config differs from that of this node; absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_configs: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "StopAsked")]
pub struct DaemonStopRequest {
    /// Leave agents running; the next start takes them up again.
    pub keep_agents: bool,
    /// Time for jobs to finish before they are cancelled, in seconds; unset means 30.
    pub timeout_seconds: Option<u64>,
}

pub(super) async fn status(State(api): State<Api>) -> Result<Json<StatusView>, ApiProblem> {
    let now = api.now();
    let asks = api.current_asks(api.store.open_asks(Count::MAX_COUNT).await?).await;
    let asks = asks.iter().filter(|ask| ask.state == AskState::Open).count();
    let messages = api.store.waiting_messages().await?.values().map(|count| *count as usize).sum();
    let (parked, provider_usage) = providers::parked_and_usage(&api).await?;
    let given_up = given_up(&api.store, &api.roster(), api.sources().context()).await?;
    let untold = undelivered(&api.store, now).await?;
    let skipped_files = skipped_files(&api.sources(), &api.roster()).await;
    let (agents, agents::AgentCounts { running, unsettled, queued, gone, gone_schedules }) =
        agents::views_and_counts(&api).await?;
    let unfinished_workspaces = match api.daemon() {
        Ok(daemon) => daemon.unfinished_workspaces().await?,
        Err(_) => Vec::new(),
    };
    let daemon = DaemonView { store_problem: store_problem(&api).await, ..view(&api) };
    let daemon = with_nodes(&api, daemon).await?;
    let node = api.state.known_node();
    let chat_bots = chat_bots(&api.store, &api.roster(), !daemon.running, node.as_deref(), now).await?;
    let lost_leases = api.lost_leases().await?;
    Ok(Json(StatusView {
        daemon,
        lost_leases,
        agents,
        running,
        unsettled,
        queued,
        asks,
        messages,
        parked,
        provider_usage,
        given_up,
        untold,
        gone,
        gone_schedules,
        skipped_files,
        unfinished_workspaces,
        chat_bots,
        undelivered_notifications: undelivered_targets(&api.store).await?,
    }))
}

/// Returns why the daemon cannot store work, with the details of the store if there are any; `None` if it can, or if no
/// daemon runs. Unlike `/readyz`, this function does not report that the daemon is stopping.
async fn store_problem(api: &Api) -> Option<String> {
    let daemon = api.daemon().ok()?;
    let unready = daemon.ready().await.err().filter(|unready| *unready != Unready::Stopping);
    unready.map(|unready| daemon.unready_reason(unready)).or_else(|| api.store.write_problem())
}

pub(super) async fn reload(State(api): State<Api>) -> Result<Json<Reloaded>, ApiProblem> {
    Ok(Json(api.daemon()?.reload().await?))
}

/// Time limit for recording the request to stop.
const RECORD_STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Requests the stop, and answers before the daemon has ended. The daemon has ended when its lock is free.
pub(super) async fn stop(
    State(api): State<Api>,
    JsonBody(request): JsonBody<DaemonStopRequest>,
) -> Result<Json<DaemonView>, ApiProblem> {
    let daemon = api.daemon()?;
    // A store that cannot be written must not prevent the stop.
    let recorded = api.store.record_fact(Fact::FleetStopping { keep_agents: request.keep_agents }, api.now());
    let store_problem = match tokio::time::timeout(RECORD_STOP_TIMEOUT, recorded).await {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(_) => Some("the store does not answer".to_owned()),
    };
    if let Some(problem) = &store_problem {
        warn!("the request to stop is not recorded: {problem}");
    }
    daemon.begin_stop(match request {
        DaemonStopRequest { keep_agents: true, .. } => Stop::KeepAgents,
        DaemonStopRequest { timeout_seconds: Some(seconds), .. } => {
            Stop::Finish { timeout: Duration::from_secs(seconds) }
        }
        DaemonStopRequest { timeout_seconds: None, .. } => Stop::default(),
    });
    Ok(Json(DaemonView { store_problem, ..view(&api) }))
}

fn view(api: &Api) -> DaemonView {
    let Ok(daemon) = api.daemon() else { return DaemonView::default() };
    let refused = daemon.config_refused();
    DaemonView {
        running: true,
        stopping: daemon.status() != FleetStatus::Running,
        pid: Some(std::process::id()),
        url: api.url.clone(),
        started_at: Some(daemon.state().started_at),
        node: Some(daemon.node().to_owned()),
        version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        config_refused_at: refused.map(|refused| refused.at),
        config_missing: refused.is_some_and(|refused| refused.is_missing),
        store_changed: daemon.store_changed(),
        certificate_problem: daemon.certificate_problem(),
        store_problem: None,
        drained_at: None,
        other_configs: Vec::new(),
    }
}

/// Adds what the store knows about the nodes.
async fn with_nodes(api: &Api, daemon: DaemonView) -> Result<DaemonView, ApiProblem> {
    if !daemon.running {
        return Ok(daemon);
    }
    let nodes = nodes::views(api).await?;
    let is_drained = |node: &&NodeView| node.is_this && node.state != NodeStateView::Ready;
    let drained_at = nodes.iter().find(is_drained).and_then(|node| node.since);
    Ok(DaemonView { drained_at, other_configs: nodes::differing(&nodes), ..daemon })
}

//! `/metrics`: the fleet in numbers, for Prometheus.
//!
//! Counts come from the event log since the start of this daemon, spending comes from the table of usage, and current
//! states are read at each request. Therefore these metrics cover the whole fleet, even if several nodes share a store.
//! The latency of the store, the requests to work sources, the lag of the views and the metrics of the process describe
//! only this daemon.

mod chat;
mod limits;
mod nodes;
mod notifications;
mod process;
mod tally;
mod text;

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use cowhand_core::id::AgentName;
use cowhand_core::plan::{LiveJob, LiveState};
use jiff::Timestamp;
use tokio::sync::Mutex;

use crate::api::ApiProblem;
use cowhand_engine::fleet::Fleet;
use tally::Tally;
use text::{MetricKind, MetricsText};

#[derive(Debug, Clone)]
pub(super) struct Metrics {
    fleet: Arc<Fleet>,
    tally: Arc<Mutex<Tally>>,
}

impl Metrics {
    pub(super) fn new(fleet: Arc<Fleet>) -> Self {
        let tally = Arc::new(Mutex::new(Tally::from(fleet.event_before_start())));
        Self { fleet, tally }
    }

    async fn page(&self) -> Result<MetricsText, ApiProblem> {
        let mut page = MetricsText::default();
        let version = [("version", env!("CARGO_PKG_VERSION").to_owned())];
        page.family(MetricKind::Gauge, "cowhand_build_info", "The version of this program.", [(version, 1)]);
        let mut tally = self.tally.lock().await;
        tally.catch_up(self.fleet.store()).await?;
        tally.write(&mut page);
        drop(tally);
        self.write_states(&mut page).await?;
        self.write_spending(&mut page).await?;
        self.write_budgets(&mut page).await?;
        self.write_providers(&mut page).await?;
        self.write_asks(&mut page).await?;
        self.write_nodes(&mut page).await?;
        self.write_chat(&mut page).await?;
        self.write_notifications(&mut page).await?;
        self.write_work_sources(&mut page);
        let [reads, writes] = self.fleet.store().latency();
        let latency = [(vec![("operation", "read")], &reads), (vec![("operation", "write")], &writes)];
        page.histograms(
            "cowhand_store_seconds",
            "Duration of the verbs of the store, from the request to the answer.",
            latency,
        );
        let counts = self.fleet.store().statement_counts();
        let help = "Statements that this node has sent to the store.";
        page.single(MetricKind::Counter, "cowhand_store_statements_total", help, counts.statements);
        let help = "Rows that these statements have returned or changed.";
        page.single(MetricKind::Counter, "cowhand_store_rows_total", help, counts.rows);
        let lag = self.fleet.store().last_event().await? - self.fleet.seen_by_views();
        let help = "Events that are recorded and not yet in the views.";
        page.single(MetricKind::Gauge, "cowhand_event_lag_events", help, lag.max(0));
        process::write(&mut page);
        Ok(page)
    }

    /// Writes the numbers of pending and running jobs, the places of the agents, and the next firings and states of the
    /// schedules.
    async fn write_states(&self, page: &mut MetricsText) -> Result<(), ApiProblem> {
        let snapshot = self.fleet.store().snapshot().await?;
        let roster = self.fleet.roster();
        let count = |agent: &AgentName, is_running: bool| {
            let is_of_agent = |job: &&LiveJob| match roster.agent(agent) {
                Some(agent) if is_running => job.takes_place_of(agent),
                _ => job.agent == *agent && matches!(job.state, LiveState::Running { .. }) == is_running,
            };
            snapshot.jobs.iter().filter(is_of_agent).count()
        };
        // Agents that were removed from the config and still have jobs come last.
        let is_adopted = |job: &&LiveJob| roster.agents.iter().any(|agent| job.takes_place_of(agent));
        let of_nobody = snapshot.jobs.iter().filter(|job| !is_adopted(job)).map(|job| &job.agent);
        let removed_agents = of_nobody.filter(|name| roster.agent(name).is_none());
        let removed_agents: BTreeSet<&AgentName> = removed_agents.collect();
        let jobs = roster.agents.iter().map(|agent| &agent.name).chain(removed_agents).flat_map(|agent| {
            [("running", true), ("pending", false)].map(|(status, is_running)| {
                let labels = [("agent", agent.to_string()), ("status", status.to_owned())];
                (labels, count(agent, is_running))
            })
        });
        page.family(MetricKind::Gauge, "cowhand_jobs", "Jobs that have not ended.", jobs);
        let places =
            roster.agents.iter().map(|agent| ([("agent", agent.name.to_string())], agent.max_concurrent));
        page.family(
            MetricKind::Gauge,
            "cowhand_agent_places",
            "Maximum number of jobs of an agent that may run at a time.",
            places,
        );
        let schedules = self.fleet.schedules().await.map_err(ApiProblem::from)?;
        let next = schedules.iter().map(|view| {
            let labels = [("agent", view.agent.to_string()), ("schedule", view.schedule.to_string())];
            (labels, view.next_run_at.map_or(0, Timestamp::as_second))
        });
        let help = "Time of the next firing of a schedule by the clock; 0 if no time is known.";
        page.family(MetricKind::Gauge, "cowhand_schedule_next_run_timestamp_seconds", help, next);
        let schedules = schedules.iter().map(|view| {
            let labels = [
                ("agent", view.agent.to_string()),
                ("schedule", view.schedule.to_string()),
                ("status", view.status.as_str().to_owned()),
            ];
            (labels, 1)
        });
        page.family(
            MetricKind::Gauge,
            "cowhand_schedule_status",
            "1 for the current status of a schedule.",
            schedules,
        );
        Ok(())
    }

    async fn write_spending(&self, page: &mut MetricsText) -> Result<(), ApiProblem> {
        let spent = self.fleet.store().total_usage().await?;
        let labels = |agent: &AgentName, model: &Option<String>| {
            [("agent", agent.to_string()), ("model", model.clone().unwrap_or_default())]
        };
        let tokens = spent.iter().flat_map(|(agent, model, usage)| {
            let [agent, model] = labels(agent, model);
            [
                ("input", usage.input_tokens),
                ("output", usage.output_tokens),
                ("cache_creation", usage.cache_creation_input_tokens),
                ("cache_read", usage.cache_read_input_tokens),
            ]
            .map(|(kind, count)| ([agent.clone(), model.clone(), ("kind", kind.to_owned())], count))
        });
        page.family(MetricKind::Counter, "cowhand_tokens_total", "Tokens, as agents report them.", tokens);
        let cost = spent
            .iter()
            .map(|(agent, model, usage)| (labels(agent, model), usage.cost_usd.unwrap_or_default()));
        page.family(
            MetricKind::Counter,
            "cowhand_cost_dollars_total",
            "Dollars, as agents report them, and assumed dollars where an agent reports none.",
            cost,
        );
        Ok(())
    }

    fn write_work_sources(&self, page: &mut MetricsText) {
        let quotas = self.fleet.sources().quotas();
        let labels = |name: &str| [("source", name.to_owned())];
        let requests = quotas.iter().map(|(name, quota)| (labels(name), quota.requests));
        let help = "Requests to work sources since the config was loaded.";
        page.family(MetricKind::Counter, "cowhand_work_source_requests_total", help, requests);
        let unchanged = quotas.iter().map(|(name, quota)| (labels(name), quota.conditional_hits));
        let help = "Requests that did not count against the rate limit, because nothing had changed.";
        page.family(MetricKind::Counter, "cowhand_work_source_unchanged_total", help, unchanged);
        let remaining = quotas
            .iter()
            .filter_map(|(name, quota)| Some((labels(name), quota.rate_limit.as_ref()?.remaining)));
        let help = "Requests that a work source still accepts, as it last reported.";
        page.family(MetricKind::Gauge, "cowhand_work_source_quota_remaining", help, remaining);
    }
}

pub(super) fn router(metrics: Metrics) -> Router {
    Router::new().route("/metrics", get(serve)).with_state(metrics)
}

async fn serve(State(metrics): State<Metrics>) -> Result<Response, ApiProblem> {
    let text = metrics.page().await?.into_text();
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response())
}

//! `/api/v1`: the API of a fleet, over HTTP on the owner's socket and the job socket, and over TCP with the access
//! control of [`crate::server`].
//!
//! The command line sends its requests to the fleet through this API. When no daemon runs, the command line calls the
//! same router without a socket, on the store alone: reads are answered, and endpoints that need a daemon fail with
//! [`ApiProblem::no_daemon`].

mod agents;
mod asks;
mod backup;
mod caller;
mod client;
mod config;
mod conversations;
mod daemon;
mod daemon_timeout;
mod doctor;
mod event_output;
mod events;
mod extract;
mod files;
mod follow;
mod followups;
mod health;
mod job_token;
mod jobs;
mod leases;
mod login;
mod masked;
mod messages;
mod next_firings;
mod nodes;
mod notifications;
mod openapi;
mod output_cursor;
mod output_place;
mod problem;
mod provider_usage;
mod providers;
mod prune;
pub(crate) mod rebinding_listener;
mod reports;
mod route;
mod routes;
mod schedules;
mod sessions;
mod socket;
mod timeline;
mod tokens;
mod usage;
mod waits;
mod work;
mod workspaces;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::http::Method;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{any, get};
use cowhand_core::ask::{Ask, AskState};
use cowhand_core::id::JobId;
use cowhand_core::moment::Moment;
use cowhand_core::plan::{LiveState, Snapshot};
use cowhand_core::roster::Roster;
use cowhand_core::server::Scope;
use cowhand_core::uptime::Uptime;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use cowhand_engine::daemon::{UnsettledAttempt, unsettled_attempts};
use cowhand_engine::fleet::Fleet;
use cowhand_engine::state::StateFolder;
use cowhand_run::redact::Redactor;
use cowhand_store::{Store, StoreError, StoredWorkspace};
use cowhand_system::remove::is_missing;
use cowhand_work::WorkSources;

pub use agents::{AdoptedJob, AgentNextFiring, AgentView, LastJob, TriggerAnswer};
pub use asks::{AnswerKind, AnswerRequest, AskRequest, AskVerdict, JobAskReply};
pub(crate) use backup::{BACKUP_PATH, ONLY_FOR_OWNER};
use caller::Refusals;
pub use client::{Client, Lines, segment};
pub use conversations::{
    ConversationMessage, ConversationState, ConversationView, NewConversationRequest, NewMessageRequest,
    SentMessageView,
};
pub use cowhand_engine::waits::Waits;
pub use cowhand_store::Cancellation;
pub use daemon::{DaemonStopRequest, DaemonView, StatusView};
pub use extract::ByPage;
pub(crate) use extract::{BodyLimit, MAX_BODY_BYTES, MAX_JOB_BODY_BYTES, too_large};
pub use extract::{method_not_allowed, require_utf8_path};
pub use files::{AcceptedFile, SendFileRequest};
pub use follow::KEEP_ALIVE_EVERY;
pub use followups::FollowupRequest;
pub use health::Health;
pub(crate) use job_token::ONLY_FOR_JOBS;
pub use job_token::{RequestedEndpoint, job_token_in};
pub use jobs::{AttemptView, JobResult, JobView, ListedJob, SourceReport, SupersededAttempt};
pub use leases::LostLease;
pub use login::{LINK_VALID_MINUTES, LoginLink, Logins};
pub use next_firings::ComingFiring;
pub(crate) use nodes::node_views;
pub use nodes::{NodeStateView, NodeView, UnableAgent};
pub use notifications::{NotificationSelection, NotificationTestRequest};
pub use output_cursor::OutputCursor;
pub use output_place::AttemptElsewhere;
pub use problem::{ApiProblem, Code};
pub use provider_usage::{ProviderUsage, WindowView};
pub use providers::ProviderView;
pub use reports::ReportRequest;
use route::JobAccess;
pub use schedules::{CancelFiringsRequest, CancelledFirings, FiringJob, FiringView, ScheduleWithFirings};
pub use sessions::SessionView;
pub use socket::{Socket, SocketError};
pub use timeline::{Lane, PastFiring, Timeline};
pub use tokens::hash;
pub use tokens::{CreatedToken, TokenRequest};
pub use usage::budget_views;
pub use usage::{
    AgentUsage, BudgetView, DayUsage, ItemUsage, ScheduleUsage, Total, UsageOfJob, UsageOfModel, UsageView,
};
pub use waits::removed_agent_sentence;
pub use waits::{RemovedAgent, RemovedSchedule};
pub use work::{ClaimRequest, CompleteRequest, QueueProblem, ReleaseRequest, RetryRequest, WorkView};
pub use workspaces::{WorkspacePhase, WorkspaceView};

/// State that the endpoints share.
#[derive(Debug, Clone)]
pub struct Api {
    store: Store,
    state: StateFolder,
    backend: ApiBackend,
    /// URL of the server, if there is one.
    url: Option<String>,
    /// Open login links of browsers.
    logins: Logins,
    /// Refusals that were already reported.
    refusals: Refusals,
}

#[derive(Debug, Clone)]
enum ApiBackend {
    /// Inside a daemon.
    Daemon(Arc<Fleet>),
    /// No daemon runs. The roster comes from the config files as they are now.
    Alone {
        roster: Arc<Roster>,
        sources: Arc<WorkSources>,
        redactor: Arc<Redactor>,
        /// Path of the `cowhand` program, which is started as the minder of git commands: it ends them when this
        /// process ends.
        program: PathBuf,
    },
}

/// One page of a list, with the cursor of the next page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "PageOf{T}")]
pub struct Page<T> {
    pub items: Vec<T>,
    pub next_cursor: Option<String>,
}

impl<T> Page<T> {
    fn all(items: Vec<T>) -> Self {
        Self { items, next_cursor: None }
    }
}

/// Returns the scope that an endpoint needs; none if there is no such endpoint. `path` is the route that matched, for
/// example `/api/v1/jobs/{job}`, so a different spelling of a path cannot avoid the check.
pub fn scope(method: &Method, path: &str) -> Option<Scope> {
    static SCOPES: LazyLock<Vec<(Method, &str, Scope)>> = LazyLock::new(|| {
        routes::all().into_iter().map(|route| (route.method, route.path, route.scope)).collect()
    });
    // `HEAD` reveals whether something exists, so it needs the scope of `GET`.
    let method = if *method == Method::HEAD { &Method::GET } else { method };
    SCOPES.iter().find(|route| route.0 == *method && route.1 == path).map(|route| route.2)
}

/// Checks whether the token of a job is sufficient for this endpoint, if the path names the same job.
pub(crate) fn is_for_jobs(method: &Method, path: &str) -> bool {
    job_access(method, path) != JobAccess::No
}

/// Checks whether only the token of a job is sufficient for this endpoint.
pub(crate) fn is_only_for_jobs(method: &Method, path: &str) -> bool {
    job_access(method, path) == JobAccess::Only
}

fn job_access(method: &Method, path: &str) -> JobAccess {
    static ROUTES: LazyLock<Vec<(Method, &str, JobAccess)>> = LazyLock::new(|| {
        routes::all().into_iter().map(|route| (route.method, route.path, route.job_access)).collect()
    });
    let found = ROUTES.iter().find(|route| route.0 == *method && route.1 == path);
    found.map_or(JobAccess::No, |route| route.2)
}

async fn no_endpoint() -> ApiProblem {
    ApiProblem::not_found("there is no such endpoint")
}

impl Api {
    pub fn of_fleet(fleet: Arc<Fleet>) -> Self {
        let (store, state) = (fleet.store().clone(), fleet.state_folder().clone());
        let (logins, refusals) = (Logins::default(), Refusals::default());
        Self { store, state, backend: ApiBackend::Daemon(fleet), url: None, logins, refusals }
    }

    /// Sets the URL of the server.
    #[must_use]
    pub fn at(self, url: Option<String>) -> Self {
        Self { url, ..self }
    }

    /// Builds an API on the store alone, while no daemon runs. `program` is the `cowhand` program.
    pub fn alone(
        store: Store,
        state: StateFolder,
        roster: Roster,
        sources: WorkSources,
        redactor: Redactor,
        program: PathBuf,
    ) -> Self {
        let (roster, sources, redactor) = (Arc::new(roster), Arc::new(sources), Arc::new(redactor));
        let (logins, refusals) = (Logins::default(), Refusals::default());
        Self {
            store,
            state,
            backend: ApiBackend::Alone { roster, sources, redactor, program },
            url: None,
            logins,
            refusals,
        }
    }

    pub fn router(self) -> Router {
        let routes = routes::all().into_iter();
        routes
            .fold(Router::new(), |router, route| router.route(route.path, route.guarded()))
            // Without this route, the dashboard would answer an unknown path of the API with a page.
            .route("/api/{*rest}", any(no_endpoint))
            .fallback(no_endpoint)
            .method_not_allowed_fallback(method_not_allowed)
            .layer(from_fn(require_utf8_path))
            .layer(from_fn_with_state(self.clone(), masked::mask_secrets))
            .with_state(self)
    }

    /// Returns the redactor with the secrets of the fleet.
    fn redactor(&self) -> Arc<Redactor> {
        match &self.backend {
            ApiBackend::Daemon(fleet) => fleet.redactor(),
            ApiBackend::Alone { redactor, .. } => Arc::clone(redactor),
        }
    }

    /// Returns the router of the health checks, which need no token.
    pub fn health(&self) -> Router {
        let router = Router::new().route("/healthz", get(health::alive));
        let router =
            router.route("/readyz", get(health::ready)).method_not_allowed_fallback(method_not_allowed);
        router.with_state(self.clone())
    }

    fn roster(&self) -> Arc<Roster> {
        match &self.backend {
            ApiBackend::Daemon(fleet) => fleet.roster(),
            ApiBackend::Alone { roster, .. } => Arc::clone(roster),
        }
    }

    fn sources(&self) -> Arc<WorkSources> {
        match &self.backend {
            ApiBackend::Daemon(fleet) => fleet.sources(),
            ApiBackend::Alone { sources, .. } => Arc::clone(sources),
        }
    }

    fn now(&self) -> Timestamp {
        match &self.backend {
            ApiBackend::Daemon(fleet) => fleet.clock().now(),
            ApiBackend::Alone { .. } => Timestamp::now(),
        }
    }

    /// Returns the current snapshot. Without a daemon, due times up to now count as missed, because no process fires
    /// them.
    async fn snapshot(&self, roster: &Roster, now: Timestamp) -> Result<Snapshot, StoreError> {
        let snapshot = self.store.snapshot_of(roster, now).await?;
        self.with_local_state(snapshot, now).await
    }

    /// If no daemon runs, adds what the store does not contain: since when no daemon fires due times, and which jobs
    /// are unsettled.
    async fn with_local_state(&self, mut snapshot: Snapshot, now: Timestamp) -> Result<Snapshot, StoreError> {
        if let ApiBackend::Alone { .. } = &self.backend {
            let present = Moment { wall: now, boot: snapshot.boot };
            snapshot.uptime = Uptime::since(present);
            // On a shared store the daemon of another node may run.
            if let Some(since) = self.store.others_since(String::new()).await? {
                snapshot.uptime.add_daemon(since, present);
            }
            let running = snapshot.jobs.iter().filter(|job| matches!(job.state, LiveState::Running { .. }));
            snapshot.unsettled =
                self.unsettled(running.map(|job| job.id.clone()).collect()).await.into_keys().collect();
        }
        Ok(snapshot)
    }

    /// Returns the jobs of `running` whose attempts do not run and are not settled. `running` contains jobs whose status
    /// in the store is `running`. Returns no jobs if a daemon runs, because the daemon settles them, or if the state
    /// folder cannot be read.
    async fn unsettled(&self, running: BTreeSet<JobId>) -> BTreeMap<JobId, UnsettledAttempt> {
        match &self.backend {
            ApiBackend::Daemon(_) => BTreeMap::new(),
            ApiBackend::Alone { .. } => {
                unsettled_attempts(&self.state, &self.store, running).await.unwrap_or_default()
            }
        }
    }

    /// Returns asks as they are now. Without a daemon, the store still lists asks as open that have expired, or whose
    /// attempts have ended.
    async fn current_asks(&self, asks: Vec<Ask>) -> Vec<Ask> {
        let now = self.now();
        let asks: Vec<Ask> = asks.into_iter().map(|ask| ask.seen_at(now)).collect();
        let open = asks.iter().filter(|ask| ask.state == AskState::Open);
        let unsettled = self.unsettled(open.map(|ask| ask.id.job.clone()).collect()).await;
        let after_end = |ask: Ask| match unsettled.get(&ask.id.job) {
            Some(UnsettledAttempt::Ended { at }) => ask.after_end(at.unwrap_or(now)),
            Some(UnsettledAttempt::NeverBegan) | None => ask,
        };
        asks.into_iter().map(after_end).collect()
    }

    pub fn state(&self) -> &StateFolder {
        &self.state
    }

    /// Returns the workspace of a job on any machine, also if only its branch is left.
    async fn workspace(&self, job: &JobId) -> Result<Option<WorkspaceView>, ApiProblem> {
        let unfinished = match &self.backend {
            ApiBackend::Daemon(fleet) => fleet.unfinished_workspace(job),
            ApiBackend::Alone { .. } => None,
        };
        let stored = self.store.workspace_anywhere(job.clone()).await?;
        let is_gone = |StoredWorkspace { workspace, .. }: &StoredWorkspace| {
            Some(&workspace.node) == self.state.known_node().as_ref() && is_missing(&workspace.path)
        };
        Ok(stored.map(|stored| {
            let is_gone = is_gone(&stored);
            WorkspaceView::new(stored, is_gone, unfinished)
        }))
    }

    /// Returns the fleet of the daemon, or a problem if no daemon runs.
    fn daemon(&self) -> Result<&Fleet, ApiProblem> {
        match &self.backend {
            ApiBackend::Daemon(fleet) => Ok(fleet),
            ApiBackend::Alone { .. } => Err(ApiProblem::no_daemon()),
        }
    }
}

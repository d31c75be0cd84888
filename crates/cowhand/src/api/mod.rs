//! `/api/v1`: everything that can be asked of a fleet, over HTTP on the daemon's Unix socket, and over TCP behind the
//! door of [`crate::server`].
//!
//! The CLI has no other way in. When no daemon runs it asks the same router without a socket, on the store alone:
//! reads are answered, and whatever needs a daemon says so ([`Problem::no_daemon`]).

mod agents;
mod client;
mod daemon;
mod events;
mod follow;
mod given;
mod jobs;
mod login;
mod problem;
mod prune;
mod schedules;
mod socket;
mod tokens;
mod work;

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::{get, post};
use cowhand_core::roster::Roster;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::fleet::Fleet;
use crate::state::StateFolder;
use crate::store::Store;
use crate::work::Sources;

pub use agents::{AgentView, LastJob, Next};
pub use client::{Client, Lines, segment};
pub use daemon::{DaemonView, Status, StopAsked};
pub use jobs::JobResult;
pub use login::LoginLink;
pub(crate) use login::Logins;
pub use problem::{Code, Problem};
pub use schedules::FiringView;
pub use socket::{Socket, SocketError};
pub use tokens::{TokenAsked, TokenMade};
pub(crate) use tokens::{hash, hex};
pub use work::{ClaimAsked, CompleteAsked, ReleaseAsked};

/// What the endpoints work on.
#[derive(Debug, Clone)]
pub struct Api {
    store: Store,
    state: StateFolder,
    side: Side,
    /// Where the server answers, if there is one.
    url: Option<String>,
    /// Of browsers that may come in.
    logins: Logins,
}

#[derive(Debug, Clone)]
enum Side {
    /// Inside a daemon.
    Daemon(Arc<Fleet>),
    /// No daemon runs; the fleet is as the files say now.
    Alone { roster: Arc<Roster>, sources: Arc<Sources> },
}

/// A list, and where its next part begins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Page<T> {
    pub items: Vec<T>,
    pub next_cursor: Option<String>,
}

impl<T> Page<T> {
    fn whole(items: Vec<T>) -> Self {
        Self { items, next_cursor: None }
    }
}

impl Api {
    pub fn of_fleet(fleet: Arc<Fleet>) -> Self {
        let (store, state) = (fleet.store().clone(), fleet.state_folder().clone());
        Self { store, state, side: Side::Daemon(fleet), url: None, logins: Logins::default() }
    }

    /// Says where the server answers.
    #[must_use]
    pub fn at(self, url: Option<String>) -> Self {
        Self { url, ..self }
    }

    /// For reading, while no daemon runs.
    pub fn alone(store: Store, state: StateFolder, roster: Roster, sources: Sources) -> Self {
        let (roster, sources) = (Arc::new(roster), Arc::new(sources));
        Self { store, state, side: Side::Alone { roster, sources }, url: None, logins: Logins::default() }
    }

    pub fn router(self) -> Router {
        Router::new()
            .route("/api/v1/status", get(daemon::status))
            .route("/api/v1/reload", post(daemon::reload))
            .route("/api/v1/stop", post(daemon::stop))
            .route("/api/v1/agents", get(agents::list))
            .route("/api/v1/agents/{agent}", get(agents::one))
            .route("/api/v1/agents/{agent}/trigger", post(agents::trigger))
            .route("/api/v1/agents/{agent}/clear", post(agents::clear))
            .route("/api/v1/schedules", get(schedules::list))
            .route("/api/v1/schedules/{agent}/{schedule}", get(schedules::one))
            .route("/api/v1/schedules/{agent}/{schedule}/firings", get(schedules::firings))
            .route("/api/v1/schedules/{agent}/{schedule}/enable", post(schedules::enable))
            .route("/api/v1/schedules/{agent}/{schedule}/disable", post(schedules::disable))
            .route("/api/v1/schedules/{agent}/{schedule}/fire", post(schedules::fire))
            .route("/api/v1/jobs", get(jobs::list))
            .route("/api/v1/jobs/{job}", get(jobs::one).delete(prune::delete))
            .route("/api/v1/jobs/{job}/output", get(jobs::output))
            .route("/api/v1/jobs/{job}/result", get(jobs::result))
            .route("/api/v1/jobs/{job}/cancel", post(jobs::cancel))
            .route("/api/v1/jobs/{job}/retry", post(jobs::retry))
            .route("/api/v1/jobs/{job}/fork", post(jobs::fork))
            .route("/api/v1/work", get(work::list))
            .route("/api/v1/work/{item}", get(work::one))
            .route("/api/v1/work/{item}/claim", post(work::claim))
            .route("/api/v1/work/{item}/release", post(work::release))
            .route("/api/v1/work/{item}/complete", post(work::complete))
            .route("/api/v1/prune", post(prune::prune))
            .route("/api/v1/tokens", get(tokens::list).post(tokens::create))
            .route("/api/v1/tokens/{name}/revoke", post(tokens::revoke))
            .route("/api/v1/login", post(login::create))
            .route("/api/v1/events", get(events::list))
            .fallback(|| async { Problem::not_found("there is no such endpoint") })
            .method_not_allowed_fallback(|| async {
                (StatusCode::METHOD_NOT_ALLOWED, Problem::bad_request("this endpoint has another method"))
            })
            .with_state(self)
    }

    fn roster(&self) -> Arc<Roster> {
        match &self.side {
            Side::Daemon(fleet) => fleet.roster(),
            Side::Alone { roster, .. } => Arc::clone(roster),
        }
    }

    fn sources(&self) -> Arc<Sources> {
        match &self.side {
            Side::Daemon(fleet) => fleet.sources(),
            Side::Alone { sources, .. } => Arc::clone(sources),
        }
    }

    fn now(&self) -> Timestamp {
        match &self.side {
            Side::Daemon(fleet) => fleet.clock().now(),
            Side::Alone { .. } => Timestamp::now(),
        }
    }

    /// For what only a daemon can do.
    fn daemon(&self) -> Result<&Fleet, Problem> {
        match &self.side {
            Side::Daemon(fleet) => Ok(fleet),
            Side::Alone { .. } => Err(Problem::no_daemon()),
        }
    }
}

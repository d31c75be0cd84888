//! Webhooks: `POST /hooks/{agent}/{schedule}`. Whoever knows the schedule's secret makes it fire, once for each delivery.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{ConnectInfo, Path, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use cowhand_core::delivery::{Delivery, MOST_BYTES, TooLarge, Webhook};
use cowhand_core::id::{AgentName, JobId, ScheduleName};
use cowhand_core::trigger::TriggerConfig;
use ring::digest::{SHA256, digest};
use serde::Serialize;
use tokio::sync::Semaphore;
use tracing::{error, warn};

use super::door::{announced, only};
use super::limit::{Limit, TooMany};
use super::signature::{self, Verdict};
use crate::api::{Code, Problem, hex};
use crate::fleet::{Delivered, Fleet};

#[derive(Debug, Clone)]
pub(super) struct Hooks {
    fleet: Arc<Fleet>,
    /// Nobody outside this machine reaches the server.
    is_local: bool,
    deliveries: Arc<Limit>,
    /// Of signatures. As with tokens, a right one is taken however many were wrong.
    wrong: Arc<Limit>,
    /// Bodies that are held in memory at once; the others wait.
    bodies: Arc<Semaphore>,
}

const MOST_BODIES: usize = 16;
/// A sender has this long to send a body, waiting included.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where senders say which delivery it is, and which event.
const IDS: [&str; 2] = ["x-github-delivery", "x-gitlab-event-uuid"];
const EVENTS: [&str; 2] = ["x-github-event", "x-gitlab-event"];
const LONGEST_ID: usize = 200;

#[derive(Debug, Serialize)]
struct Answer {
    status: Status,
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<JobId>,
}

#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Accepted,
    Duplicate,
    Filtered,
    Pong,
}

/// What a schedule says about its deliveries.
#[derive(Debug)]
struct Hook {
    agent: AgentName,
    schedule: ScheduleName,
    secrets: Vec<String>,
    allow_unsigned: bool,
}

enum Refused {
    Problem(Problem),
    TooMany(TooMany),
    TimedOut,
}

impl Hooks {
    pub(super) fn new(fleet: Arc<Fleet>, is_local: bool) -> Self {
        Self {
            fleet,
            is_local,
            deliveries: Arc::new(Limit::new(1000, Duration::from_millis(10))),
            wrong: Arc::new(Limit::new(20, Duration::from_secs(3))),
            bodies: Arc::new(Semaphore::new(MOST_BODIES)),
        }
    }

    /// Not for every reason why there is none: a stranger is not to learn what this fleet has.
    fn find(&self, agent: &str, schedule: &str) -> Result<Hook, Problem> {
        let unknown = || Problem::not_found("there is no such webhook");
        let agent: AgentName = agent.parse().map_err(|_| unknown())?;
        let roster = self.fleet.roster();
        let found = roster.agent(&agent).ok_or_else(unknown)?;
        let schedule = found.schedules.iter().find(|known| known.name.as_str() == schedule);
        let schedule = schedule.ok_or_else(unknown)?;
        let TriggerConfig::Webhook { secret, secret_env, allow_unsigned, .. } = &schedule.trigger else {
            return Err(unknown());
        };
        let mut secrets: Vec<String> = secret.iter().cloned().collect();
        let sources = self.fleet.sources();
        let names = secret_env.iter().flat_map(|names| names.split(',')).map(str::trim);
        for name in names.filter(|name| !name.is_empty()) {
            match sources.setting().variable(name) {
                Some(secret) => secrets.push(secret),
                None => {
                    warn!(%agent, schedule = %schedule.name, "{name}, the secret of a webhook, is not set");
                }
            }
        }
        if secrets.is_empty() && secret_env.is_some() {
            error!(%agent, schedule = %schedule.name, "a webhook cannot be checked, because none of its secrets is set");
            return Err(Problem::unavailable("this webhook is not set up; the log says what is missing"));
        }
        Ok(Hook { agent, schedule: schedule.name.clone(), secrets, allow_unsigned: *allow_unsigned })
    }

    fn check(&self, hook: &Hook, headers: &HeaderMap, body: &[u8], peer: IpAddr) -> Result<(), Refused> {
        let verdict = if hook.secrets.is_empty() {
            Verdict::Unsigned
        } else {
            signature::check(headers, body, &hook.secrets, self.fleet.clock().now())
        };
        let why = match verdict {
            Verdict::Right => return Ok(()),
            Verdict::Unsigned if hook.allow_unsigned && self.is_local => return Ok(()),
            Verdict::Unsigned if hook.allow_unsigned => {
                "unsigned deliveries are taken only where the server listens on its own machine"
            }
            Verdict::Unsigned => "the delivery is not signed",
            Verdict::Wrong => "the signature is wrong",
            Verdict::Stale => {
                "the delivery was signed more than five minutes ago, or by a clock that is wrong"
            }
        };
        self.wrong.take(peer)?;
        warn!(agent = %hook.agent, schedule = %hook.schedule, %peer, "a webhook was refused: {why}");
        Err(Problem::new(Code::Unauthorized, why).into())
    }

    async fn body(&self, headers: &HeaderMap, body: Body) -> Result<Bytes, Refused> {
        if let Some(bytes) = announced(headers).filter(|bytes| *bytes > MOST_BYTES) {
            return Err(TooLarge { bytes }.into());
        }
        let read = to_bytes(body, MOST_BYTES).await;
        read.map_err(|error| {
            let source = std::error::Error::source(&error);
            if source.is_some_and(<dyn std::error::Error>::is::<http_body_util::LengthLimitError>) {
                return TooLarge { bytes: MOST_BYTES + 1 }.into();
            }
            Problem::bad_request(format!("the delivery cannot be read: {error}")).into()
        })
    }
}

pub(super) fn router(hooks: Hooks) -> Router {
    let other = || async { Problem::new(Code::BadMethod, "deliveries come by POST") };
    Router::new().route("/hooks/{agent}/{schedule}", post(receive).fallback(other)).with_state(hooks)
}

async fn receive(
    State(hooks): State<Hooks>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Path((agent, schedule)): Path<(String, String)>,
    request: Request,
) -> Result<Response, Refused> {
    hooks.deliveries.take(peer.ip())?;
    let hook = hooks.find(&agent, &schedule)?;
    let (parts, body) = request.into_parts();
    let held = async {
        let place = hooks.bodies.acquire().await.map_err(|_| Problem::stopping())?;
        Ok::<_, Refused>((place, hooks.body(&parts.headers, body).await?))
    };
    // The place is kept until the delivery is on disk: until then its body is in memory.
    let (_place, body) = tokio::time::timeout(PATIENCE, held).await.map_err(|_| Refused::TimedOut)??;
    hooks.check(&hook, &parts.headers, &body, peer.ip())?;
    let webhook = Webhook::of_body(id(&parts.headers, &body), event(&parts.headers), &body)?;
    drop(body);
    let delivered = hooks.fleet.deliver(&hook.agent, &hook.schedule, Delivery::Webhook(webhook)).await;
    let (code, status, job) = match delivered.map_err(Problem::from)? {
        Delivered::New(job) => (StatusCode::ACCEPTED, Status::Accepted, Some(job.id().clone())),
        Delivered::Preparing => (StatusCode::ACCEPTED, Status::Accepted, None),
        Delivered::Duplicate => (StatusCode::OK, Status::Duplicate, None),
        Delivered::Filtered => (StatusCode::ACCEPTED, Status::Filtered, None),
        Delivered::Ping => (StatusCode::OK, Status::Pong, None),
    };
    Ok((code, Json(Answer { status, job })).into_response())
}

/// What the sender calls it; without that, what is in it.
fn id(headers: &HeaderMap, body: &[u8]) -> String {
    let named = IDS.iter().find_map(|name| only(headers, name));
    match named.filter(|id| !id.is_empty() && id.len() <= LONGEST_ID) {
        Some(id) => id.to_owned(),
        None => format!("sha256:{}", hex(digest(&SHA256, body).as_ref())),
    }
}

fn event(headers: &HeaderMap) -> &str {
    EVENTS.iter().find_map(|name| only(headers, name)).unwrap_or_default()
}

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

impl From<TooMany> for Refused {
    fn from(too_many: TooMany) -> Self {
        Self::TooMany(too_many)
    }
}

impl From<TooLarge> for Refused {
    fn from(error: TooLarge) -> Self {
        Self::Problem(Problem::new(Code::TooLarge, error.to_string()))
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        match self {
            Self::Problem(problem) => problem.into_response(),
            Self::TooMany(too_many) => too_many.into_response(),
            Self::TimedOut => {
                Problem::new(Code::TooSlow, "the delivery took too long to arrive").into_response()
            }
        }
    }
}

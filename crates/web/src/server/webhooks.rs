//! Webhooks: `POST /hooks/{agent}/{schedule}`. A sender that knows the secret of a schedule can fire the schedule, once
//! for each delivery.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::rejection::PathRejection;
use axum::extract::{ConnectInfo, Path, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use cowhand_core::actor::Actor;
use cowhand_core::delivery::{Delivery, MAX_BODY_BYTES, TooLarge, Webhook};
use cowhand_core::id::{AgentName, JobId, ScheduleName};
use cowhand_core::trigger::TriggerConfig;
use ring::digest::{SHA256, digest};
use serde::Serialize;
use serde_json::json;
use tracing::{error, warn};

use super::intake::{DeliveryPermits, Intake};
use super::origin_check::{announced_length, single_header};
use super::rate_limit::{RateLimit, TooMany, retry_later};
use super::signature::{self, SignatureVerdict};
use crate::api::{ApiProblem, Code};
use cowhand_engine::fleet::{Delivered, Fleet, FleetError};
use cowhand_store::audit;
use cowhand_system::digest::hex;

#[derive(Debug, Clone)]
pub(super) struct WebhookReceiver {
    fleet: Arc<Fleet>,
    /// Set if the server is reachable only from this machine.
    is_local: bool,
    /// Limit, for each address, on wrong deliveries: without a valid signature, for a path that is not a webhook, or
    /// with a body that is too large, cannot be read or does not arrive. Valid deliveries are still processed above the
    /// limit, but only a few at a time.
    failures: Arc<RateLimit>,
    intake: Arc<Intake>,
}

/// Time limit for a body to arrive, after there is memory for it.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum wait for memory. A delivery that waits longer is refused, and does not count as a wrong delivery.
const MEMORY_TIMEOUT: Duration = Duration::from_secs(30);
const RETRY_WITHOUT_MEMORY_SECONDS: u64 = 1;

/// Headers in which senders put the id of the delivery.
const DELIVERY_ID_HEADERS: [&str; 2] = ["x-github-delivery", "x-gitlab-event-uuid"];
const GITHUB_EVENT_HEADER: &str = "x-github-event";
/// Headers in which senders put the name of the event.
const EVENT_HEADERS: [&str; 2] = [GITHUB_EVENT_HEADER, "x-gitlab-event"];
/// Maximum length of a sender's delivery id, in bytes.
const MAX_DELIVERY_ID: usize = 200;

#[derive(Debug, Serialize)]
struct DeliveryAnswer {
    status: DeliveryStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<JobId>,
}

#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
enum DeliveryStatus {
    Accepted,
    Duplicate,
    Filtered,
    Pong,
}

/// Settings of a schedule for its deliveries.
#[derive(Debug)]
struct WebhookSettings {
    agent: AgentName,
    schedule: ScheduleName,
    secrets: Vec<String>,
    allow_unsigned: bool,
}

enum Refused {
    Problem(ApiProblem),
    TooMany(TooMany),
    TimedOut,
    NoMemory,
}

impl WebhookReceiver {
    pub(super) fn new(fleet: Arc<Fleet>, is_local: bool) -> Self {
        Self {
            fleet,
            is_local,
            failures: Arc::new(RateLimit::new(20, Duration::from_secs(3))),
            intake: Arc::new(Intake::new()),
        }
    }

    fn find(&self, agent: &str, schedule: &str) -> Result<WebhookSettings, ApiProblem> {
        let agent: AgentName = agent.parse().map_err(|_| unknown())?;
        let roster = self.fleet.roster();
        let found = roster.agent(&agent).ok_or_else(unknown)?;
        let schedule = found.schedules.iter().find(|candidate| candidate.name.as_str() == schedule);
        let schedule = schedule.ok_or_else(unknown)?;
        let TriggerConfig::Webhook { secret, allow_unsigned, .. } = &schedule.trigger else {
            let message = format!("{agent}/{} is not a webhook", schedule.name);
            return Err(ApiProblem::new(Code::NotAWebhook, message));
        };
        let mut secrets: Vec<String> = secret.iter().cloned().collect();
        let sources = self.fleet.sources();
        let names: Vec<&str> = schedule.trigger.secret_names().collect();
        secrets.extend(names.iter().filter_map(|name| sources.context().variable(name)));
        if secrets.is_empty() && (!names.is_empty() || !allow_unsigned) {
            let missing = if names.is_empty() {
                "it has no `secret_env`".to_owned()
            } else {
                format!("{} not set", names.join(", "))
            };
            error!(%agent, schedule = %schedule.name, "a webhook cannot be checked: {missing}");
            return Err(ApiProblem::unavailable("this webhook is not set up; the log shows what is missing"));
        }
        Ok(WebhookSettings {
            agent,
            schedule: schedule.name.clone(),
            secrets,
            allow_unsigned: *allow_unsigned,
        })
    }

    /// Checks the signature, and returns whether the delivery is signed. Refuses a wrong or stale signature. Accepts an
    /// unsigned delivery only if the schedule allows it and the server is reachable only from this machine.
    fn check(
        &self,
        settings: &WebhookSettings,
        headers: &HeaderMap,
        body: &[u8],
        peer: IpAddr,
    ) -> Result<bool, Refused> {
        let verdict = if settings.secrets.is_empty() {
            SignatureVerdict::Unsigned
        } else {
            signature::check(headers, body, &settings.secrets, self.fleet.clock().now())
        };
        let why = match verdict {
            SignatureVerdict::Right => return Ok(true),
            SignatureVerdict::Unsigned if settings.allow_unsigned && self.is_local => return Ok(false),
            SignatureVerdict::Unsigned if settings.allow_unsigned => {
                "unsigned deliveries are accepted only if the server listens on loopback"
            }
            SignatureVerdict::Unsigned => "the delivery is not signed",
            SignatureVerdict::Wrong => "the signature is wrong",
            SignatureVerdict::Stale => {
                "the delivery was signed more than five minutes ago, or by a clock that is wrong"
            }
        };
        self.failures.take(peer)?;
        warn!(agent = %settings.agent, schedule = %settings.schedule, %peer, "a webhook was refused: {why}");
        Err(ApiProblem::new(Code::Unauthorized, why).into())
    }
}

pub(super) fn router(receiver: WebhookReceiver) -> Router {
    let wrong_method = || async { ApiProblem::new(Code::BadMethod, "use POST for deliveries") };
    Router::new()
        .route("/hooks/{agent}/{schedule}", post(receive).fallback(wrong_method))
        .with_state(receiver)
}

fn unknown() -> ApiProblem {
    ApiProblem::not_found("there is no such webhook")
}

async fn receive(
    State(receiver): State<WebhookReceiver>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    path: Result<Path<(String, String)>, PathRejection>,
    request: Request,
) -> Result<Response, Refused> {
    let peer = peer.ip();
    let count_failure =
        |refused: Refused| receiver.failures.take(peer).map_or_else(Refused::from, |()| refused);
    let found =
        path.map_err(|_| unknown()).and_then(|Path((agent, schedule))| receiver.find(&agent, &schedule));
    let settings = found.map_err(|problem| match problem.code {
        Code::Unavailable => problem.into(),
        _ => count_failure(problem.into()),
    })?;
    let _admitted = receiver.intake.admit()?;
    let (parts, body) = request.into_parts();
    let announced = announced_length(&parts.headers);
    if announced.is_some_and(|bytes| bytes > MAX_BODY_BYTES) {
        return Err(count_failure(TooLarge.into()));
    }
    let (_permits, body) = receive_body(&receiver.intake, &receiver.failures, peer, announced, body).await?;
    let is_signed = receiver.check(&settings, &parts.headers, &body, peer)?;
    let _parsing = receiver.intake.reserve_parsing(body.len()).await;
    let webhook = Webhook::of_body(delivery_id(&parts.headers, &body), event_name(&parts.headers), &body)?;
    drop(body);
    if let Some(challenge) = webhook.challenge().filter(|_| is_signed) {
        return Ok(Json(json!({ "challenge": challenge })).into_response());
    }
    let is_github = is_signed && parts.headers.contains_key(GITHUB_EVENT_HEADER);
    let repository = webhook.repository().filter(|_| is_github).map(str::to_owned);
    let id = webhook.id.clone();
    let delivering = receiver.fleet.deliver(&settings.agent, &settings.schedule, Delivery::Webhook(webhook));
    let delivered = audit::by(Actor::Sender { from: peer }, delivering).await;
    let delivered = delivered.map_err(delivery_problem)?;
    if let (Some(repository), true) = (repository, delivered.is_new()) {
        receiver.fleet.repository_changed(&repository, &id);
    }
    Ok(answer(&delivered))
}

/// Waits for memory and then for the body. Counts a body that is too large, cannot be read or does not arrive as a
/// wrong delivery.
async fn receive_body<'i>(
    intake: &'i Intake,
    failures: &RateLimit,
    peer: IpAddr,
    announced: Option<usize>,
    body: Body,
) -> Result<(DeliveryPermits<'i>, Bytes), Refused> {
    let count_failure = |refused: Refused| failures.take(peer).map_or_else(Refused::from, |()| refused);
    let reserving = intake.reserve(peer, announced, failures.is_used_up(peer));
    let permits = tokio::time::timeout(MEMORY_TIMEOUT, reserving).await.map_err(|_| Refused::NoMemory)?;
    let body = tokio::time::timeout(BODY_TIMEOUT, read_body(body)).await;
    let body = body.unwrap_or(Err(Refused::TimedOut)).map_err(count_failure)?;
    Ok((permits, body))
}

/// Returns the problem for a delivery with a valid signature that the fleet has not accepted. For a schedule that is turned
/// off, the status is 404, and the message states that the schedule is off.
fn delivery_problem(error: FleetError) -> ApiProblem {
    match error {
        FleetError::ScheduleOff { .. } | FleetError::OffInFile { .. } => {
            ApiProblem::not_found(error.to_string())
        }
        other => other.into(),
    }
}

fn answer(delivered: &Delivered) -> Response {
    let (code, status, job) = match delivered {
        Delivered::New(job) => (StatusCode::ACCEPTED, DeliveryStatus::Accepted, Some(job.id().clone())),
        Delivered::Preparing => (StatusCode::ACCEPTED, DeliveryStatus::Accepted, None),
        Delivered::Duplicate => (StatusCode::OK, DeliveryStatus::Duplicate, None),
        Delivered::Filtered => (StatusCode::ACCEPTED, DeliveryStatus::Filtered, None),
        Delivered::Ping => (StatusCode::OK, DeliveryStatus::Pong, None),
    };
    (code, Json(DeliveryAnswer { status, job })).into_response()
}

async fn read_body(body: Body) -> Result<Bytes, Refused> {
    to_bytes(body, MAX_BODY_BYTES).await.map_err(|error| {
        let source = std::error::Error::source(&error);
        if source.is_some_and(<dyn std::error::Error>::is::<http_body_util::LengthLimitError>) {
            return TooLarge.into();
        }
        ApiProblem::bad_request(format!("the delivery cannot be read: {error}")).into()
    })
}

/// Returns the id that the sender gives the delivery, or a hash of the body if that id is missing, empty or too long.
fn delivery_id(headers: &HeaderMap, body: &[u8]) -> String {
    let sender_id = DELIVERY_ID_HEADERS.iter().find_map(|name| single_header(headers, name));
    match sender_id.filter(|id| !id.is_empty() && id.len() <= MAX_DELIVERY_ID) {
        Some(id) => id.to_owned(),
        None => format!("sha256:{}", hex(digest(&SHA256, body).as_ref())),
    }
}

fn event_name(headers: &HeaderMap) -> &str {
    EVENT_HEADERS.iter().find_map(|name| single_header(headers, name)).unwrap_or_default()
}

impl From<ApiProblem> for Refused {
    fn from(problem: ApiProblem) -> Self {
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
        Self::Problem(ApiProblem::new(Code::TooLarge, error.to_string()))
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        match self {
            Self::Problem(problem) => problem.into_response(),
            Self::TooMany(too_many) => too_many.into_response(),
            Self::TimedOut => {
                ApiProblem::new(Code::TooSlow, "the delivery took too long to arrive").into_response()
            }
            Self::NoMemory => {
                let message =
                    "there is no memory for this delivery, because too many others are being processed";
                retry_later(ApiProblem::new(Code::Busy, message), RETRY_WITHOUT_MEMORY_SECONDS)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::header::RETRY_AFTER;
    use futures_util::stream;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_delivery_whose_body_does_not_arrive_counts_as_wrong() {
        let (intake, failures) = (Intake::new(), RateLimit::new(1, Duration::from_hours(1)));
        let peer = IpAddr::from([192, 0, 2, 1]);
        let receive = |body| receive_body(&intake, &failures, peer, None, body);
        let permits =
            [receive(Body::empty()).await.ok().unwrap(), receive(Body::empty()).await.ok().unwrap()];
        let refused = receive(Body::empty()).await.err().unwrap().into_response();
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE, "no memory is free");
        assert!(refused.headers().contains_key(RETRY_AFTER));
        assert!(!failures.is_used_up(peer));
        drop(permits);
        let never = || Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>());
        let refused = receive(never()).await.err().unwrap().into_response();
        assert_eq!(refused.status(), StatusCode::REQUEST_TIMEOUT);
        assert!(failures.is_used_up(peer));
    }

    #[tokio::test(start_paused = true)]
    async fn the_wait_for_memory_does_not_shorten_the_time_for_the_body() {
        let (intake, failures) = (Intake::new(), RateLimit::new(1, Duration::from_hours(1)));
        let peer = IpAddr::from([192, 0, 2, 1]);
        let permits = [intake.reserve(peer, None, false).await, intake.reserve(peer, None, false).await];
        let slow = Body::from_stream(stream::once(async {
            tokio::time::sleep(Duration::from_secs(20)).await;
            Ok::<_, std::io::Error>(Bytes::from_static(b"{}"))
        }));
        let free_memory = async {
            tokio::time::sleep(Duration::from_secs(20)).await;
            drop(permits);
        };
        let (received, ()) = tokio::join!(receive_body(&intake, &failures, peer, None, slow), free_memory);
        assert_eq!(received.ok().unwrap().1, "{}");
    }
}

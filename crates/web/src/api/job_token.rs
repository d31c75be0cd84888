//! The rights of a request with a job token.

use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderMap, Method, header};
use axum::middleware::Next;
use axum::response::Response;
use cowhand_core::actor::Actor;
use cowhand_core::id::JobId;

use super::{Api, ApiProblem, Code};
use cowhand_engine::job_token::is_job_token;
use cowhand_store::audit;

/// Returns the token in `Authorization`, if it is a job token.
pub fn job_token_in(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (_, token) = value.split_once(' ')?;
    let token = token.trim();
    is_job_token(token).then_some(token)
}

/// Message for a request that only the agent of a running job may send.
pub(crate) const ONLY_FOR_JOBS: &str =
    "only the agent of a running job may send this, with the token of its job";

/// Checks whether the current request comes from the agent of a running job.
pub(super) fn is_job() -> bool {
    matches!(audit::current(), Some(Actor::Job { .. }))
}

/// Refuses callers other than the agent of a running job. An ask, follow-up or report of another caller would look like
/// one that the agent made.
pub(super) async fn refuse_others(request: Request, next: Next) -> Result<Response, ApiProblem> {
    if is_job() {
        return Ok(next.run(request).await);
    }
    Err(ApiProblem::new(Code::Forbidden, ONLY_FOR_JOBS))
}

/// Endpoint that a request addresses.
#[derive(Debug)]
pub struct RequestedEndpoint {
    method: Method,
    /// Route that matches the path; empty if there is none.
    route: String,
    path: String,
}

impl RequestedEndpoint {
    pub fn of(request: &Request) -> Self {
        let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str).unwrap_or_default();
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        Self { method, route: route.to_owned(), path }
    }
}

impl Api {
    /// Returns the job of the token as actor. Refuses an invalid token. Refuses an endpoint that the token does not
    /// open, and records an event for the first such refusal.
    pub(crate) async fn admit(&self, token: &str, requested: RequestedEndpoint) -> Result<Actor, ApiProblem> {
        let invalid_token =
            || ApiProblem::new(Code::Unauthorized, "the job's token is wrong, or its attempt has ended");
        let job = self.daemon()?.job_of_token(token).await?.ok_or_else(invalid_token)?;
        if !requested.concerns(&job) {
            let stored = self.store.job(job.clone()).await?;
            let number = stored.map_or(0, |stored| stored.attempts());
            self.record_refusal((job, number), &requested, "with the job's token").await?;
            return Err(ApiProblem::new(
                Code::Forbidden,
                "the token of a job is valid only for endpoints of that job",
            ));
        }
        Ok(Actor::Job { job })
    }
}

impl RequestedEndpoint {
    /// Checks whether the token of this job is sufficient for the endpoint.
    pub(super) fn concerns(&self, job: &JobId) -> bool {
        // An id needs no percent-encoding, so it can be compared with the path as sent.
        let rest = self.path.strip_prefix("/api/v1/jobs/");
        let is_same_job = rest.and_then(|rest| rest.split('/').next()) == Some(job.as_str());
        is_same_job && super::is_for_jobs(&self.method, &self.route)
    }

    pub(super) fn is_read_only(&self) -> bool {
        self.method.is_safe()
    }

    /// Returns the method and the route, for people.
    pub(super) fn endpoint(&self) -> (String, String) {
        let route = if self.route.is_empty() { "no endpoint" } else { &self.route };
        (self.method.to_string(), route.to_owned())
    }
}

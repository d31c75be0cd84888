//! The rights of a request with a job token.

use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderMap, Method, header};
use cowhand_core::actor::Actor;
use cowhand_core::id::JobId;

use super::{Api, ApiProblem, Code};
use cowhand_engine::job_token::is_job_token;

/// Returns the token in `Authorization`, if it is a job token.
pub fn shown(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (_, token) = value.split_once(' ')?;
    let token = token.trim();
    is_job_token(token).then_some(token)
}

/// Endpoint that a request asks for.
#[derive(Debug)]
pub struct Wanted {
    method: Method,
    /// Route that answers.
    route: String,
    path: String,
}

impl Wanted {
    pub fn by(request: &Request) -> Self {
        let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str).unwrap_or_default();
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        Self { method, route: route.to_owned(), path }
    }
}

impl Api {
    /// Allows an attempt the endpoints of its own job, as that job; refuses all others, with an event.
    pub(crate) async fn admit(&self, token: &str, wanted: Wanted) -> Result<Actor, ApiProblem> {
        let wrong =
            || ApiProblem::new(Code::Unauthorized, "the job's token is wrong, or its attempt has ended");
        let job = self.daemon()?.job_of_token(token).await?.ok_or_else(wrong)?;
        if !wanted.concerns(&job) {
            let known = self.store.job(job.clone()).await?;
            let number = known.map_or(0, |known| known.attempts());
            self.note_refusal((job, number), &wanted, "with the job's token").await?;
            return Err(ApiProblem::new(
                Code::Forbidden,
                "a job's token is for what concerns that job alone",
            ));
        }
        Ok(Actor::Job { job })
    }
}

impl Wanted {
    /// Checks whether the token of this job is sufficient for the endpoint.
    pub(super) fn concerns(&self, job: &JobId) -> bool {
        // An id contains no character that has another encoding.
        let rest = self.path.strip_prefix("/api/v1/jobs/");
        let own = rest.and_then(|rest| rest.split('/').next()) == Some(job.as_str());
        own && super::is_for_jobs(&self.method, &self.route)
    }

    pub(super) fn only_looks(&self) -> bool {
        self.method.is_safe()
    }

    /// Returns the method and the route, for people.
    pub(super) fn endpoint(&self) -> (String, String) {
        let route = if self.route.is_empty() { "no endpoint" } else { &self.route };
        (self.method.to_string(), route.to_owned())
    }
}

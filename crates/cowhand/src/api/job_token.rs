//! A job's own token: what the processes of one attempt show to be let at the endpoints of their job, and at nothing
//! else. It is made of the job's id and the attempt by a key that never leaves the state folder, so nobody has to keep
//! it, and it is good only while that attempt runs.

use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderMap, Method, header};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use cowhand_core::actor::Actor;
use cowhand_core::id::JobId;
use cowhand_core::job::JobStatus;
use ring::hmac;

use super::{Code, Problem};
use crate::store::Store;

/// By this it is told from the tokens of people and programs.
const PREFIX: &str = "cowjob_";

#[derive(Debug, Clone)]
pub(crate) struct JobKey(hmac::Key);

impl JobKey {
    pub(crate) fn new(secret: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    pub(crate) fn token(&self, job: &JobId, attempt: u32) -> String {
        let tag = hmac::sign(&self.0, said(job, attempt).as_bytes());
        format!("{PREFIX}{job}.{attempt}.{}", BASE64_URL_SAFE_NO_PAD.encode(tag))
    }

    /// Whose it is, if it is one of ours.
    fn read(&self, token: &str) -> Option<(JobId, u32)> {
        let (job, attempt, tag) = parts(token)?;
        let tag = BASE64_URL_SAFE_NO_PAD.decode(tag).ok()?;
        hmac::verify(&self.0, said(&job, attempt).as_bytes(), &tag).ok()?;
        Some((job, attempt))
    }
}

/// Which job and attempt a token names, whether or not it is good.
pub(crate) fn claimed(token: &str) -> Option<(JobId, u32)> {
    parts(token).map(|(job, attempt, _)| (job, attempt))
}

fn parts(token: &str) -> Option<(JobId, u32, &str)> {
    let mut parts = token.strip_prefix(PREFIX)?.splitn(3, '.');
    let (job, attempt, tag) = (parts.next()?, parts.next()?, parts.next()?);
    Some((job.parse().ok()?, attempt.parse().ok()?, tag))
}

fn said(job: &JobId, attempt: u32) -> String {
    format!("cowhand job token\n{job}\n{attempt}")
}

/// The token in `Authorization`, if it is that of a job.
pub(crate) fn shown(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (_, token) = value.split_once(' ')?;
    let token = token.trim();
    token.starts_with(PREFIX).then_some(token)
}

/// What somebody asks for.
#[derive(Debug)]
pub(crate) struct Wanted {
    method: Method,
    /// That answers.
    route: String,
    path: String,
}

impl Wanted {
    pub(crate) fn by(request: &Request) -> Self {
        let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str).unwrap_or_default();
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        Self { method, route: route.to_owned(), path }
    }
}

/// Lets an attempt at an endpoint of its own job.
pub(crate) async fn admit(
    key: &JobKey,
    store: &Store,
    token: &str,
    wanted: Wanted,
) -> Result<Actor, Problem> {
    let wrong = || Problem::new(Code::Unauthorized, "the job's token is wrong, or its attempt has ended");
    let (job, attempt) = key.read(token).ok_or_else(wrong)?;
    let known = store.job(job.clone()).await?.ok_or_else(wrong)?;
    if known.status() != JobStatus::Running || known.attempts() != attempt {
        return Err(wrong());
    }
    if !wanted.concerns(&job) {
        return Err(Problem::new(Code::Forbidden, "a job's token is for what concerns that job alone"));
    }
    Ok(Actor::Job { job })
}

impl Wanted {
    /// Says whether the token of this job is enough for it.
    pub(super) fn concerns(&self, job: &JobId) -> bool {
        // An id has no letter that could be written in another way.
        let rest = self.path.strip_prefix("/api/v1/jobs/");
        let own = rest.and_then(|rest| rest.split('/').next()) == Some(job.as_str());
        own && super::is_for_jobs(&self.method, &self.route)
    }

    pub(super) fn only_looks(&self) -> bool {
        self.method.is_safe()
    }

    /// The method and the route, for people.
    pub(super) fn endpoint(&self) -> (String, String) {
        let route = if self.route.is_empty() { "no endpoint" } else { &self.route };
        (self.method.to_string(), route.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_can_make_one_of_another() {
        let key = JobKey::new(b"a key of thirty-two random bytes");
        let (job, other): (JobId, JobId) =
            ("job-2026-01-05-a1b2c3".parse().unwrap(), "job-2026-01-05-a1b2c4".parse().unwrap());
        let token = key.token(&job, 1);
        assert_eq!(key.read(&token), Some((job.clone(), 1)));
        let tag = token.rsplit_once('.').unwrap().1;
        for forged in [
            format!("cowjob_{other}.1.{tag}"),
            format!("cowjob_{job}.2.{tag}"),
            format!("cowjob_{job}.1."),
            format!("cowjob_{job}.1"),
            format!("cowjob_{job}.1.{tag}A"),
            format!("cowjob_{job}.1.{}", &tag[1..]),
            token.replace("cowjob_", "cow_"),
            JobKey::new(b"another").token(&job, 1),
            String::new(),
        ] {
            assert_eq!(key.read(&forged), None, "{forged}");
        }
        assert_eq!(claimed(&token), Some((job, 1)));
    }
}

//! The job socket. It accepts only job tokens, and does not check the user of the calling process. Therefore even a
//! sandboxed or hostile agent may have access to it.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::HeaderValue;
use axum::http::header;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Router};
use cowhand_core::actor::Actor;
use cowhand_core::id::JobId;
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tracing::{error, warn};

use super::connection::serve_stream;
use super::rate_limit::retry_later;
use crate::api::rebinding_listener::{ACCEPT_PAUSE, RebindingListener, SocketPath};
use crate::api::{
    self, Api, ApiProblem, BodyLimit, Code, MAX_JOB_BODY_BYTES, RequestedEndpoint, SocketError,
};
use cowhand_engine::state::{StateFolder, job_socket};
use cowhand_engine::trigger::stopped;
use cowhand_store::audit;

/// Largest number of connections at a time; further clients wait in the kernel.
const MAX_CONNECTIONS: usize = 256;
/// Largest number of requests of one job at a time. Each open ask of the job needs one waiting request.
const MAX_REQUESTS_PER_JOB: usize = 64;
/// Time after which a job that has too many requests should try again.
const RETRY_AFTER_SECONDS: u64 = 1;
/// Timeout for the head of a request. It is short, because a client on the same machine sends the head at once.
const HEAD_TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub struct JobSocket {
    path: SocketPath,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl JobSocket {
    pub fn open(api: &Api) -> Result<Self, SocketError> {
        let listener = RebindingListener::bind(api.clone(), find_path);
        let listener = listener.map_err(|source| SocketError::at(api.state().path(), source))?;
        let path = listener.path().clone();
        let (stop, stopping) = watch::channel(false);
        let router = api.clone().router().layer(DefaultBodyLimit::max(MAX_JOB_BODY_BYTES));
        let router = router.layer(Extension(BodyLimit(MAX_JOB_BODY_BYTES)));
        let state = JobSocketState { api: api.clone(), requests: RequestCounts::default() };
        let router = router.layer(from_fn_with_state(state, check_token));
        let task = tokio::spawn(serve(listener, router, stopping));
        Ok(Self { path, stop, task })
    }

    /// Stops answering and removes the socket. Its folder remains for agents that wait for the next daemon.
    pub async fn close(self) {
        self.stop.send_replace(true);
        self.task.abort();
        if let Err(error) = self.task.await
            && !error.is_cancelled()
        {
            error!("the socket of jobs has failed: {error}");
        }
        if let Err(error) = self.path.remove() {
            error!("cannot remove {}: {error}", self.path.link.display());
        }
    }
}

fn find_path(state: &StateFolder) -> io::Result<SocketPath> {
    let path = job_socket(state)?;
    Ok(SocketPath { link: path.clone(), real: path })
}

async fn serve(mut listener: RebindingListener, router: Router, stop: watch::Receiver<bool>) {
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let accepted = async {
            let permit = Arc::clone(&permits).acquire_owned().await.map_err(io::Error::other)?;
            Ok::<_, io::Error>((permit, listener.next_stream().await?.0))
        };
        let accepted = tokio::select! {
            accepted = accepted => accepted,
            Some(_) = connections.join_next() => continue,
            () = stopped(&stop) => return,
        };
        match accepted {
            Ok((permit, stream)) => {
                let connection = serve_stream(stream, JobPeer, HEAD_TIMEOUT, router.clone(), stop.clone());
                connections.spawn(async move {
                    connection.await;
                    drop(permit);
                });
            }
            Err(error) => {
                warn!("cannot accept a connection of a job: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Peer of the socket, for the log. The socket does not identify the process.
#[derive(Debug, Clone, Copy)]
struct JobPeer;

#[derive(Debug, Clone)]
struct JobSocketState {
    api: Api,
    requests: RequestCounts,
}

/// Number of running requests of each job.
#[derive(Debug, Clone, Default)]
struct RequestCounts(Arc<Mutex<HashMap<JobId, usize>>>);

/// Running request. It is counted until this guard is dropped.
#[derive(Debug)]
struct RequestGuard {
    requests: RequestCounts,
    job: JobId,
}

impl RequestCounts {
    /// Counts a request; returns none if the job already has its maximum.
    fn try_add(&self, job: &JobId) -> Option<RequestGuard> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(job.clone()).or_default();
        if *count >= MAX_REQUESTS_PER_JOB {
            return None;
        }
        *count += 1;
        Some(RequestGuard { requests: self.clone(), job: job.clone() })
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let mut counts = self.requests.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.job) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.job);
            }
        }
    }
}

/// Checks the token and the number of the job's requests, before any of the body is read.
async fn check_token(State(state): State<JobSocketState>, request: Request, next: Next) -> Response {
    let token = api::job_token_in(request.headers()).map(str::to_owned);
    let admitted = match token {
        Some(token) => state.api.admit(&token, RequestedEndpoint::of(&request)).await,
        None => Err(ApiProblem::new(Code::Unauthorized, "this socket accepts only tokens of jobs")),
    };
    let actor = match admitted {
        Ok(actor) => actor,
        Err(problem) => return refused(problem),
    };
    let request_guard = match &actor {
        Actor::Job { job } => state.requests.try_add(job),
        _ => None,
    };
    let Some(_request_guard) = request_guard else {
        let message = "this job has too many requests at a time; try again later";
        return refused(retry_later(ApiProblem::new(Code::TooMany, message), RETRY_AFTER_SECONDS));
    };
    audit::by(actor, next.run(request)).await
}

/// Builds the answer to a refused request. The connection is closed, so that it does not occupy a permit.
fn refused(answer: impl IntoResponse) -> Response {
    let mut response = answer.into_response();
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_one_job_are_limited() {
        let requests = RequestCounts::default();
        let [job, other]: [JobId; 2] =
            ["job-2026-01-05-a1b2c3", "job-2026-01-05-a1b2c4"].map(|id| id.parse().unwrap());
        let mut taken: Vec<_> = (0..MAX_REQUESTS_PER_JOB).map(|_| requests.try_add(&job).unwrap()).collect();
        assert!(requests.try_add(&job).is_none());
        let other_guard = requests.try_add(&other);
        assert!(other_guard.is_some(), "another job has its own limit");
        taken.pop();
        taken.push(requests.try_add(&job).unwrap());
        assert!(requests.try_add(&job).is_none());
        drop((taken, other_guard));
        assert!(requests.0.lock().unwrap().is_empty(), "jobs without requests are removed");
    }
}

//! Determines who uses the owner's socket: a person, or a process of a job.
//!
//! An agent without a sandbox runs as the daemon's user, so it can connect to this socket. It gets only the rights of
//! its job's token, so that it cannot answer its own asks, start other jobs or create tokens. The kernel names the
//! process that connected. The control groups and the environments of this process and its ancestors show whether the
//! process belongs to an attempt (decision 0024).

use std::collections::HashSet;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::connect_info::Connected;
use axum::serve::IncomingStream;
use cowhand_core::actor::Actor;
use cowhand_core::event::Fact;
use cowhand_core::id::JobId;
use cowhand_core::job::JobStatus;
use tokio::net::UnixStream;
use tracing::warn;

use super::rebinding_listener::RebindingListener;
use super::{Api, ApiProblem, Code, RequestedEndpoint};
use cowhand_run::process::attempts_above;
use cowhand_run::shortage::is_shortage;
use cowhand_store::audit;

/// Identity of a caller, determined when the caller connected.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    /// User of the process, if the system reports it.
    pub(super) uid: Option<u32>,
    /// Names of attempts, of any fleet, that the process and its ancestors belong to; or the reason why they
    /// are unknown.
    attempts: Result<Vec<String>, String>,
}

impl Connected<IncomingStream<'_, RebindingListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, RebindingListener>) -> Self {
        Self::of(stream.io())
    }
}

impl Peer {
    /// Inspects the process immediately, while it exists and its pid is not in use by another process.
    fn of(stream: &UnixStream) -> Self {
        let Ok(credentials) = stream.peer_cred() else {
            return Self { uid: None, attempts: Err("the system does not report it".to_owned()) };
        };
        let attempts = match credentials.pid() {
            // The process is outside the daemon's PID namespace, for example on the host of its container. The daemon's
            // own descendants are always inside.
            None | Some(0) => Ok(Vec::new()),
            Some(pid) => known_attempts(attempts_above(pid)),
        };
        Self { uid: Some(credentials.uid()), attempts }
    }
}

/// Returns the attempts, or the reason why they are unknown: the process has ended, or could not be inspected.
fn known_attempts(attempts: io::Result<Option<Vec<String>>>) -> Result<Vec<String>, String> {
    match attempts {
        Ok(Some(attempts)) => Ok(attempts),
        Ok(None) => Err("it has ended".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Job and the number of its attempt.
type AttemptKey = (JobId, u32);

/// Caller whose request was refused.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum RefusedCaller {
    Attempt(AttemptKey),
    User(u32),
}

/// Refusals that were already reported: caller, method and endpoint. They are kept so that repeated requests do not
/// fill the log.
#[derive(Debug, Clone, Default)]
pub(super) struct Refusals(Arc<Mutex<HashSet<(RefusedCaller, String, String)>>>);

/// Maximum number of stored refusals. When it is reached, all are removed, and further refusals are reported again.
const MAX_REFUSALS: usize = 10_000;

impl Refusals {
    /// Checks whether this is the first refusal of its kind.
    fn is_new(&self, caller: RefusedCaller, method: &str, endpoint: &str) -> bool {
        let mut reported = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if reported.len() >= MAX_REFUSALS {
            reported.clear();
        }
        reported.insert((caller, method.to_owned(), endpoint.to_owned()))
    }
}

impl Api {
    /// Refuses every user except the daemon's user and root. The first refusal of an endpoint to a user is logged and
    /// recorded as an event. The mode of the socket also keeps other users out, but a process of the same owner can
    /// change that mode. A caller whose user is unknown is refused by [`Self::attempt_of`].
    pub(super) async fn admit_user(
        &self,
        peer: &Peer,
        requested: &RequestedEndpoint,
    ) -> Result<(), ApiProblem> {
        let daemon_uid = rustix::process::geteuid().as_raw();
        let Some(uid) = peer.uid.filter(|uid| *uid != daemon_uid && *uid != 0) else { return Ok(()) };
        let (method, endpoint) = requested.endpoint();
        if self.refusals.is_new(RefusedCaller::User(uid), &method, &endpoint) {
            let user = audit::person(uid);
            warn!(
                "{user} was refused {method} {endpoint}: the socket is for user {daemon_uid} and root only"
            );
            let fact = Fact::AccessRefused { method, endpoint };
            audit::by(user, self.store.record_fact(fact, self.now())).await?;
        }
        let message = format!(
            "this socket is for the user of the daemon ({daemon_uid}) and root only, not for user {uid}"
        );
        Err(ApiProblem::new(Code::Forbidden, message))
    }

    /// Finds the attempt of this fleet that a caller belongs to; `None` for a person. A process of a job of another
    /// fleet counts as a person. A hook counts as a person too: it is a command of the config, has the rights of the
    /// owner, and its mark names no attempt. The oldest ancestor decides, because an agent can set the environment of
    /// the processes that it starts. Returns an error if the attempts of the caller are unknown.
    pub(super) async fn attempt_of(&self, peer: &Peer) -> Result<Option<AttemptKey>, ApiProblem> {
        let attempts = peer.attempts.as_ref().map_err(|why| {
            let message = format!("cannot determine which process connected to the socket: {why}; try again");
            ApiProblem::new(if is_shortage(why) { Code::Busy } else { Code::Forbidden }, message)
        })?;
        for name in attempts.iter().rev() {
            let Some((job, number)) = name.rsplit_once('.') else { continue };
            let (Ok(job), Ok(number)) = (job.parse::<JobId>(), number.parse()) else { continue };
            if self.store.job(job.clone()).await?.is_some() {
                return Ok(Some((job, number)));
            }
        }
        Ok(None)
    }

    /// Allows a process of a running attempt the endpoints that the token of its job opens. Refuses all other
    /// endpoints, and every request of an attempt that does not run.
    pub(super) async fn admit_attempt(
        &self,
        attempt: AttemptKey,
        requested: &RequestedEndpoint,
    ) -> Result<Actor, ApiProblem> {
        let (job, number) = &attempt;
        let stored = self.store.job(job.clone()).await?;
        let is_running = stored
            .is_some_and(|stored| stored.status() == JobStatus::Running && stored.attempts() == *number);
        if is_running && requested.concerns(job) {
            return Ok(Actor::Job { job: job.clone() });
        }
        self.record_refusal(attempt.clone(), requested, "on the owner's socket").await?;
        let message = format!(
            "this process belongs to {job}; on this socket an agent may only use the endpoints of its own job; \
             run the command in another terminal"
        );
        Err(ApiProblem::new(Code::Forbidden, message))
    }

    /// Logs the first refusal of an endpoint to an attempt, and records it as an event.
    pub(super) async fn record_refusal(
        &self,
        attempt: AttemptKey,
        requested: &RequestedEndpoint,
        how: &str,
    ) -> Result<(), ApiProblem> {
        let (method, endpoint) = requested.endpoint();
        if self.refusals.is_new(RefusedCaller::Attempt(attempt.clone()), &method, &endpoint) {
            let job = attempt.0;
            warn!(%job, "a process of this job was refused {method} {endpoint} {how}");
            let actor = Actor::Job { job: job.clone() };
            let fact = Fact::AccessRefused { method, endpoint };
            audit::by(actor, self.store.record_fact_of_job(job, fact, self.now())).await?;
        }
        Ok(())
    }
}

//! Who is at the other end of the owner's socket: a person, or a process of a job.
//!
//! An agent outside of any sandbox has the same user as its owner and reaches this socket. It gets what the token of its job
//! gives it and no more, so that it cannot answer its own asks, start others or make tokens. The kernel tells which process
//! connected; whether that belongs to an attempt is told by its control group, by its environment and by those of its
//! ancestors (decision 0024).

use std::collections::HashSet;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::connect_info::Connected;
use axum::serve::IncomingStream;
use cowhand_core::actor::Actor;
use cowhand_core::event::Fact;
use cowhand_core::id::JobId;
use cowhand_core::job::JobStatus;
use tokio::net::{UnixListener, UnixStream};
use tracing::warn;

use super::{Api, Code, Problem, Wanted};
use cowhand_run::process::attempts_above;
use cowhand_run::shortage::is_named_in as is_shortage;
use cowhand_store::audit;

/// What was found out about a caller when it connected.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    /// The user, if the system tells.
    pub(super) uid: Option<u32>,
    /// Names of attempts, of any fleet, that the process and its ancestors belong to; or why nobody knows.
    attempts: Result<Vec<String>, String>,
}

impl Connected<IncomingStream<'_, UnixListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, UnixListener>) -> Self {
        Self::of(stream.io())
    }
}

impl Peer {
    /// Looks at once, while the process is there and its number is its own.
    fn of(stream: &UnixStream) -> Self {
        let Ok(credentials) = stream.peer_cred() else {
            return Self { uid: None, attempts: Err("the system does not tell".to_owned()) };
        };
        let attempts = match credentials.pid() {
            // A process outside of what we see of the machine, for example on the host of our container. What descends from
            // us is always inside.
            None | Some(0) => Ok(Vec::new()),
            Some(pid) => found(attempts_above(pid)),
        };
        Self { uid: Some(credentials.uid()), attempts }
    }
}

fn found(attempts: io::Result<Option<Vec<String>>>) -> Result<Vec<String>, String> {
    match attempts {
        Ok(Some(attempts)) => Ok(attempts),
        Ok(None) => Err("it has ended".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// A job and the number of its attempt.
type OfJob = (JobId, u32);

/// Who was refused.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Refused {
    Attempt(OfJob),
    User(u32),
}

/// Endpoints that were refused already, so that whoever tries again and again fills no log.
#[derive(Debug, Clone, Default)]
pub(super) struct Refusals(Arc<Mutex<HashSet<(Refused, String, String)>>>);

/// How many are remembered; after that, they are told once more.
const MAX_REFUSALS: usize = 10_000;

impl Refusals {
    /// Says whether it is the first one of its kind.
    fn is_new(&self, who: Refused, method: &str, endpoint: &str) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_REFUSALS {
            known.clear();
        }
        known.insert((who, method.to_owned(), endpoint.to_owned()))
    }
}

impl Api {
    /// Refuses every user but the daemon's own and root, with an event. The mode of the socket says the same, but a process
    /// of the same owner can change that mode.
    pub(super) async fn admit_user(&self, peer: &Peer, wanted: &Wanted) -> Result<(), Problem> {
        let own = rustix::process::geteuid().as_raw();
        let Some(uid) = peer.uid.filter(|uid| *uid != own && *uid != 0) else { return Ok(()) };
        let (method, endpoint) = wanted.endpoint();
        if self.refusals.is_new(Refused::User(uid), &method, &endpoint) {
            let user = audit::person(uid);
            warn!("{user} was refused {method} {endpoint}: the socket is for user {own} and root only");
            let fact = Fact::AccessRefused { method, endpoint };
            audit::by(user, self.store.note(fact, self.now())).await?;
        }
        let message =
            format!("this socket is for the user of the daemon ({own}) and root only, not for user {uid}");
        Err(Problem::new(Code::Forbidden, message))
    }

    /// Finds the attempt of this fleet that a caller belongs to. A process of another fleet's job is a person to us. A hook is a
    /// command of the config and has the rights of its owner: its name is that of no attempt. The oldest ancestor decides,
    /// since an agent can set the environment of what it starts.
    pub(super) async fn attempt_of(&self, peer: &Peer) -> Result<Option<OfJob>, Problem> {
        let attempts = peer.attempts.as_ref().map_err(|why| {
            let message = format!("cannot tell which process connected to the socket: {why}; try again");
            Problem::new(if is_shortage(why) { Code::Busy } else { Code::Forbidden }, message)
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

    /// Lets a process of an attempt at what the token of its job would open; all else is refused, with an event.
    pub(super) async fn admit_attempt(&self, of: OfJob, wanted: &Wanted) -> Result<Actor, Problem> {
        let (job, number) = &of;
        let known = self.store.job(job.clone()).await?;
        let runs =
            known.is_some_and(|known| known.status() == JobStatus::Running && known.attempts() == *number);
        if runs && wanted.concerns(job) {
            return Ok(Actor::Job { job: job.clone() });
        }
        self.note_refusal(of.clone(), wanted, "on the owner's socket").await?;
        let message = format!(
            "this process belongs to {job}, and an agent may do here only what concerns its own job; \
             do it from a terminal of your own"
        );
        Err(Problem::new(Code::Forbidden, message))
    }

    /// Records that a job was refused an endpoint, the first time that it tries.
    pub(super) async fn note_refusal(&self, of: OfJob, wanted: &Wanted, how: &str) -> Result<(), Problem> {
        let (method, endpoint) = wanted.endpoint();
        if self.refusals.is_new(Refused::Attempt(of.clone()), &method, &endpoint) {
            let job = of.0;
            warn!(%job, "a process of this job was refused {method} {endpoint} {how}");
            let actor = Actor::Job { job: job.clone() };
            let fact = Fact::AccessRefused { method, endpoint };
            audit::by(actor, self.store.note_of_job(job, fact, self.now())).await?;
        }
        Ok(())
    }
}

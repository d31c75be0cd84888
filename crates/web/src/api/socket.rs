//! The owner's socket: its path, its access control and its removal.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use axum::Router;
use axum::extract::connect_info::{ConnectInfo, IntoMakeServiceWithConnectInfo};
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use cowhand_core::actor::Actor;
use tokio::net::UnixStream;
use tokio::task::JoinHandle;
use tracing::error;

use super::caller::Peer;
use super::rebinding_listener::{RebindingListener, SocketPath};
use super::{Api, ApiProblem, Code, RequestedEndpoint, job_token};
use cowhand_engine::state::{MAX_SOCKET_PATH, StateFolder, short_socket_path};
use cowhand_store::audit;
use cowhand_system::closed::{advice, closed_folder};

#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {}: {source}", path.display())]
pub struct SocketError {
    path: PathBuf,
    source: io::Error,
}

impl SocketError {
    pub fn at(path: &Path, source: io::Error) -> Self {
        Self { path: path.to_owned(), source }
    }
}

/// Open socket.
#[derive(Debug)]
pub struct Socket {
    path: SocketPath,
    server: JoinHandle<()>,
}

impl Socket {
    pub fn open(api: Api) -> Result<Self, SocketError> {
        let listener = RebindingListener::bind(api.clone(), find_path);
        let listener = listener.map_err(|source| SocketError { path: api.state.socket(), source })?;
        let path = listener.path().clone();
        if let Ok(fleet) = api.daemon() {
            fleet.record_socket();
        }
        let server = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, owner_service(api)).await {
                error!("the API has ended: {error}");
            }
        });
        Ok(Self { path, server })
    }

    /// Stops answering and removes the files.
    pub async fn close(self) {
        self.server.abort();
        // The task has to end first, because its listener would bind a removed socket again.
        let _ = self.server.await;
        if let Err(error) = self.path.remove() {
            error!("cannot remove {}: {error}", self.path.link.display());
        }
    }

    /// Connects to the daemon; returns none if no daemon answers for this folder.
    pub(super) async fn connect(state: &StateFolder) -> io::Result<Option<UnixStream>> {
        let link = state.socket();
        // The link names the socket that the daemon chose, which may depend on the environment of the daemon.
        let real = fs::read_link(&link).unwrap_or(link);
        if real.as_os_str().len() > MAX_SOCKET_PATH {
            return Ok(None);
        }
        Self::connect_at(&real).await
    }

    /// Returns true if the state folder exists and has no socket. A daemon removes its socket when it stops. A killed
    /// daemon leaves its socket.
    pub(super) fn is_removed(state: &StateFolder) -> bool {
        let is_missing = |error: io::Error| error.kind() == io::ErrorKind::NotFound;
        state.path().is_dir() && fs::symlink_metadata(state.socket()).is_err_and(is_missing)
    }

    pub(super) async fn connect_at(path: &Path) -> io::Result<Option<UnixStream>> {
        match UnixStream::connect(path).await {
            Ok(stream) => Ok(Some(stream)),
            Err(error)
                if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) =>
            {
                Ok(None)
            }
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                let folder = path.parent().unwrap_or(path).display();
                Err(io::Error::new(
                    error.kind(),
                    format!("{folder} is a file, not a folder; move or remove it"),
                ))
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(denied(path, &error)),
            Err(error) => Err(error),
        }
    }
}

/// Adds to the error what this user can do to open the socket.
fn denied(path: &Path, error: &io::Error) -> io::Error {
    let owner = path.parent().and_then(|state| fs::symlink_metadata(state).ok()).map(|state| state.uid());
    let is_other = |owner: &u32| *owner != rustix::process::geteuid().as_raw();
    let advice = match owner.filter(is_other) {
        Some(owner) => {
            Some(format!("only user {owner} and root can use this fleet; run cowhand as one of them"))
        }
        None => closed_folder(path).map(|folder| advice(&folder)),
    };
    let advice = advice.map(|advice| format!("; {advice}")).unwrap_or_default();
    io::Error::new(error.kind(), format!("cannot reach {}: {error}{advice}", path.display()))
}

fn find_path(state: &StateFolder) -> io::Result<SocketPath> {
    let link = state.socket();
    let is_short = link.as_os_str().len() <= MAX_SOCKET_PATH;
    let real = if is_short { link.clone() } else { short_socket_path(state)? };
    Ok(SocketPath { link, real })
}

/// Builds the service of the socket, which identifies callers by their process.
fn owner_service(api: Api) -> IntoMakeServiceWithConnectInfo<Router, Peer> {
    let router = api.clone().router();
    router.layer(middleware::from_fn_with_state(api, identify_caller)).into_make_service_with_connect_info()
}

/// Checks the rights of the caller, and runs the request in its name.
async fn identify_caller(
    State(api): State<Api>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    request: Request,
    next: Next,
) -> Response {
    let token = job_token::job_token_in(request.headers()).map(str::to_owned);
    let actor = match admit(&api, &peer, token, RequestedEndpoint::of(&request)).await {
        Ok(actor) => actor,
        Err(problem) => return problem.into_response(),
    };
    match actor {
        Some(actor) => audit::by(actor, next.run(request)).await,
        None => next.run(request).await,
    }
}

/// Checks the rights of the caller, and returns the actor to record. None for a person who only reads, and if the
/// system does not report the user.
async fn admit(
    api: &Api,
    peer: &Peer,
    token: Option<String>,
    requested: RequestedEndpoint,
) -> Result<Option<Actor>, ApiProblem> {
    api.admit_user(peer, &requested).await?;
    let attempt = api.attempt_of(peer).await?;
    match (token, attempt) {
        // A caller with a job token has only the rights of that token, even if it is the owner.
        (Some(token), attempt) => {
            let actor = api.admit(&token, requested).await?;
            let is_other_job = attempt.is_some_and(|(job, _)| actor != Actor::Job { job });
            if is_other_job {
                return Err(ApiProblem::new(Code::Forbidden, "this is the token of another job"));
            }
            Ok(Some(actor))
        }
        (None, Some(attempt)) => api.admit_attempt(attempt, &requested).await.map(Some),
        (None, None) => Ok(peer.uid.filter(|_| !requested.is_read_only()).map(audit::person)),
    }
}

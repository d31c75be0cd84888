//! The daemon's Unix socket: its path, its access control and its removal.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use axum::Router;
use axum::extract::connect_info::{ConnectInfo, IntoMakeServiceWithConnectInfo};
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use cowhand_core::actor::Actor;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;
use tracing::error;

use super::caller::Peer;
use super::{Api, ApiProblem, Code, Wanted, job_token};
use cowhand_engine::state::{LONGEST_SOCKET_PATH, StateFolder, short_socket_path};
use cowhand_store::audit;
use cowhand_system::closed::{advice, closed_folder};
use cowhand_system::remove::absent_is_ok;

#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {}: {source}", place.display())]
pub struct SocketError {
    place: PathBuf,
    source: io::Error,
}

impl SocketError {
    pub fn at(place: &Path, source: io::Error) -> Self {
        Self { place: place.to_owned(), source }
    }
}

/// Open socket. Its owner also holds the lock of the state folder, so a file of an earlier daemon at its path
/// belongs to nobody.
#[derive(Debug)]
pub struct Socket {
    /// Path in the state folder; a link if the real socket has to be elsewhere.
    known_as: PathBuf,
    real: PathBuf,
    server: JoinHandle<()>,
}

impl Socket {
    pub fn open(api: Api) -> Result<Self, SocketError> {
        let known_as = place(&api.state);
        let listen = || {
            let real = if known_as.as_os_str().len() <= LONGEST_SOCKET_PATH {
                known_as.clone()
            } else {
                short_socket_path(&api.state)?
            };
            for stale in [&known_as, &real] {
                absent_is_ok(fs::remove_file(stale))?;
            }
            let listener = UnixListener::bind(&real)?;
            fs::set_permissions(&real, Permissions::from_mode(0o600))?;
            if real != known_as {
                symlink(&real, &known_as)?;
            }
            Ok((real, listener))
        };
        let (real, listener) = listen().map_err(|source| SocketError { place: known_as.clone(), source })?;
        let server = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, by_persons(api)).await {
                error!("the API has ended: {error}");
            }
        });
        Ok(Self { known_as, real, server })
    }

    /// Stops answering and removes the files.
    pub fn close(self) {
        self.server.abort();
        for path in [&self.known_as, &self.real] {
            if let Err(error) = absent_is_ok(fs::remove_file(path)) {
                error!("cannot remove {}: {error}", path.display());
            }
        }
    }

    /// Connects to the daemon; returns none if no daemon answers for this folder.
    pub(super) async fn connect(state: &StateFolder) -> io::Result<Option<UnixStream>> {
        let known_as = place(state);
        // The link names the socket that the daemon chose, whatever our own environment is.
        let real = fs::read_link(&known_as).unwrap_or(known_as);
        if real.as_os_str().len() > LONGEST_SOCKET_PATH {
            return Ok(None);
        }
        Self::connect_at(&real).await
    }

    /// Checks whether the last daemon removed its socket, as it does when it stops. A killed daemon leaves
    /// it.
    pub(super) fn is_removed(state: &StateFolder) -> bool {
        let missing = |error: io::Error| error.kind() == io::ErrorKind::NotFound;
        state.path().is_dir() && fs::symlink_metadata(place(state)).is_err_and(missing)
    }

    pub(super) async fn connect_at(place: &Path) -> io::Result<Option<UnixStream>> {
        match UnixStream::connect(place).await {
            Ok(stream) => Ok(Some(stream)),
            Err(error)
                if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) =>
            {
                Ok(None)
            }
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                let folder = place.parent().unwrap_or(place).display();
                Err(io::Error::new(error.kind(), format!("{folder} is a file, not a folder; move it away")))
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(refused(place, &error)),
            Err(error) => Err(error),
        }
    }
}

/// Adds the folder that denies this user access to the socket, if there is one.
fn refused(place: &Path, error: &io::Error) -> io::Error {
    let why = closed_folder(place).map(|folder| format!("; {}", advice(&folder))).unwrap_or_default();
    io::Error::new(error.kind(), format!("cannot reach {}: {error}{why}", place.display()))
}

fn place(state: &StateFolder) -> PathBuf {
    state.path().join("sock")
}

/// Builds the service, in which the socket itself identifies its peer.
fn by_persons(api: Api) -> IntoMakeServiceWithConnectInfo<Router, Peer> {
    let router = api.clone().router();
    router.layer(middleware::from_fn_with_state(api, named)).into_make_service_with_connect_info()
}

async fn named(
    State(api): State<Api>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    request: Request,
    next: Next,
) -> Response {
    let token = job_token::shown(request.headers()).map(str::to_owned);
    let actor = match admitted(&api, &peer, token, Wanted::by(&request)).await {
        Ok(actor) => actor,
        Err(problem) => return problem.into_response(),
    };
    match actor {
        Some(actor) => audit::by(actor, next.run(request)).await,
        None => next.run(request).await,
    }
}

/// Returns the actor of the request, if it has to be recorded.
async fn admitted(
    api: &Api,
    peer: &Peer,
    token: Option<String>,
    wanted: Wanted,
) -> Result<Option<Actor>, ApiProblem> {
    api.admit_user(peer, &wanted).await?;
    let attempt = api.attempt_of(peer).await?;
    match (token, attempt) {
        // A caller that shows a job token has only its rights, although the socket would allow more.
        (Some(token), attempt) => {
            let actor = api.admit(&token, wanted).await?;
            let other = attempt.is_some_and(|(job, _)| actor != Actor::Job { job });
            if other {
                return Err(ApiProblem::new(Code::Forbidden, "this is the token of another job"));
            }
            Ok(Some(actor))
        }
        (None, Some(attempt)) => api.admit_attempt(attempt, &wanted).await.map(Some),
        (None, None) => Ok(peer.uid.filter(|_| !wanted.only_looks()).map(audit::person)),
    }
}

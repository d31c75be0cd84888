//! Client of the API: uses the owner's socket, the job socket or, if no daemon runs, its own router on the store.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Method, Request, Response, StatusCode, header};
use futures_util::TryFutureExt;
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep};
use tower::ServiceExt;

use super::daemon_timeout::await_answer;
use super::extract::{MAX_BODY_BYTES, MAX_JOB_BODY_BYTES, too_large};
use super::socket::Socket;
use super::{Api, ApiProblem, Code, OutputCursor};
use cowhand_core::actor::Actor;
use cowhand_engine::state::StateFolder;
use cowhand_run::process::ProcessIdentity;
use cowhand_store::audit;

/// Longest time for which a request is repeated while the daemon is busy.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
const BUSY_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Time limit for a connection to a daemon that holds the state folder. If its socket was removed, the daemon makes the
/// socket again within this time.
const SOCKET_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for a daemon that holds the state folder to write its pid into the lock file.
const NAME_TIMEOUT: Duration = Duration::from_millis(200);
const SOCKET_POLL_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub enum Client {
    Daemon(DaemonClient),
    /// Client with only the rights of a job.
    Job {
        socket: PathBuf,
        token: String,
    },
    /// Router on the store, while no daemon runs.
    Alone {
        router: Router,
        /// Person who acts. If `None`, the actor is the one that [`audit::by`] has set for the running future.
        person: Option<Actor>,
    },
}

/// Client of the daemon that has this state folder.
#[derive(Debug)]
pub struct DaemonClient {
    state: StateFolder,
    /// Set if the daemon ended before it had answered a request, or refused it because it is being replaced.
    is_lost: AtomicBool,
    /// Set if a request was sent that may have changed something, or if a part of an answer was returned.
    has_effect: AtomicBool,
}

impl DaemonClient {
    fn new(state: &StateFolder) -> Self {
        Self { state: state.clone(), is_lost: AtomicBool::new(false), has_effect: AtomicBool::new(false) }
    }
}

impl Client {
    /// Connects to the daemon; returns `None` if no daemon with a socket runs. Waits for a daemon that is starting,
    /// stopping or being replaced, or whose socket was removed a moment ago, and fails if it accepts no connection in
    /// time.
    pub async fn of_daemon(state: &StateFolder) -> Result<Option<Self>, ApiProblem> {
        let began = Instant::now();
        loop {
            let client = Self::of_answering_daemon(state).await?;
            let is_restarting = state.is_restarting();
            if client.is_some() || !(is_restarting || state.is_locked()) {
                return Ok(client);
            }
            // A fleet that another program runs has a lock file without a pid, and no socket. The store of such a fleet
            // can be read. If the lock file is missing, it was removed, and the daemon makes it again.
            let is_named = state.lock_holder().is_some() || state.starting_process().is_some();
            if !is_named && !is_restarting && state.has_lock_file() && began.elapsed() >= NAME_TIMEOUT {
                return Ok(None);
            }
            if began.elapsed() >= SOCKET_TIMEOUT {
                return Err(ApiProblem::new(Code::NoDaemon, no_socket(state)));
            }
            sleep(SOCKET_POLL_INTERVAL).await;
        }
    }

    /// Connects to the daemon; returns `None` if no daemon accepts a connection now.
    pub async fn of_answering_daemon(state: &StateFolder) -> Result<Option<Self>, ApiProblem> {
        let stream = Socket::connect(state).await.map_err(|error| cannot_connect(&error))?;
        Ok(stream.map(|_| Self::Daemon(DaemonClient::new(state))))
    }

    /// Checks whether the last daemon stopped in an orderly way, and was not killed.
    pub fn daemon_has_stopped(state: &StateFolder) -> bool {
        Socket::is_removed(state)
    }

    /// Returns the process of the daemon, so that the caller can wait for its end; `None` if no daemon accepts a
    /// connection, or if its process is not visible from here, for example because it runs in a container.
    pub async fn process_of_daemon(state: &StateFolder) -> Option<ProcessIdentity> {
        let stream = Socket::connect(state).await.ok()??;
        ProcessIdentity::of(stream.peer_cred().ok()?.pid()?).ok()?
    }

    pub fn alone(api: Api) -> Self {
        Self::Alone { router: api.router(), person: None }
    }

    /// Returns the client of the person who runs this process, while no daemon runs.
    pub fn of_person(api: Api) -> Self {
        let person = audit::person(rustix::process::geteuid().as_raw());
        Self::Alone { router: api.router(), person: Some(person) }
    }

    /// Returns the client of a job, without checking whether a daemon answers.
    pub fn of_job(socket: PathBuf, token: String) -> Self {
        Self::Job { socket, token }
    }

    pub fn is_alone(&self) -> bool {
        matches!(self, Self::Alone { .. })
    }

    /// Returns whether the daemon has ended before it had answered, or is being replaced, and all requests can be repeated with a new client:
    /// none may have changed something, and no part of an answer that is read line by line was returned.
    pub fn can_begin_again(&self) -> bool {
        self.daemon().is_some_and(|daemon| daemon.is_lost.load(Ordering::Relaxed)) && !self.has_effect()
    }

    /// Returns whether a request to the daemon may have changed something, or a part of an answer was returned.
    pub fn has_effect(&self) -> bool {
        self.daemon().is_some_and(|daemon| daemon.has_effect.load(Ordering::Relaxed))
    }

    fn daemon(&self) -> Option<&DaemonClient> {
        match self {
            Self::Daemon(daemon) => Some(daemon),
            Self::Job { .. } | Self::Alone { .. } => None,
        }
    }

    fn set_lost(&self) {
        self.daemon().into_iter().for_each(|daemon| daemon.is_lost.store(true, Ordering::Relaxed));
    }

    fn set_effect(&self) {
        self.daemon().into_iter().for_each(|daemon| daemon.has_effect.store(true, Ordering::Relaxed));
    }

    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ApiProblem> {
        let response = self.send(Method::GET, path, Bytes::new()).await?;
        self.parse_answer(response).await
    }

    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        input: &impl Serialize,
    ) -> Result<T, ApiProblem> {
        let body = serde_json::to_vec(input).map_err(|error| ApiProblem::bad_request(error.to_string()))?;
        // The daemon may close the connection before it has read a body that is too large, so its answer may get lost.
        let limit = if matches!(self, Self::Job { .. }) { MAX_JOB_BODY_BYTES } else { MAX_BODY_BYTES };
        if body.len() > limit {
            return Err(too_large(limit));
        }
        let response = self.send(Method::POST, path, Bytes::from(body)).await?;
        self.parse_answer(response).await
    }

    pub async fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, ApiProblem> {
        let response = self.send(Method::DELETE, path, Bytes::new()).await?;
        self.parse_answer(response).await
    }

    /// Gets an answer in plain text.
    pub async fn text(&self, path: &str) -> Result<Bytes, ApiProblem> {
        let body = success_body(self.send(Method::GET, path, Bytes::new()).await?).await?;
        self.read_all(body).await
    }

    /// Downloads an answer to a file.
    pub async fn download(&self, path: &str, file: &mut impl std::io::Write) -> Result<(), ApiProblem> {
        let mut body = success_body(self.send(Method::GET, path, Bytes::new()).await?).await?;
        self.set_effect();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| connection_failed(&error))?;
            let bytes = frame.into_data().unwrap_or_default();
            file.write_all(&bytes)
                .map_err(|error| ApiProblem::unavailable(format!("cannot write: {error}")))?;
        }
        Ok(())
    }

    /// Requests an answer that is read line by line.
    pub async fn lines(&self, path: &str) -> Result<Lines, ApiProblem> {
        let response = self.send(Method::GET, path, Bytes::new()).await?;
        let header = response.headers().get(OutputCursor::HEADER).and_then(|value| value.to_str().ok());
        let output_cursor = header.and_then(|value| value.parse().ok());
        let body = success_body(response).await?;
        self.set_effect();
        Ok(Lines { output_cursor, body, buffer: Vec::new(), line_start: 0 })
    }

    /// Sends a request. Repeats it for up to [`BUSY_TIMEOUT`] while the daemon reports that it is busy. A daemon that is
    /// busy, or refuses a request because it stops, has not processed the request.
    async fn send(&self, method: Method, path: &str, body: Bytes) -> Result<Response<Body>, ApiProblem> {
        let deadline = Instant::now() + BUSY_TIMEOUT;
        loop {
            let request = self.request(&method, path, body.clone())?;
            let response = Box::pin(self.send_once(request)).await?;
            if response.status() != StatusCode::SERVICE_UNAVAILABLE {
                if method != Method::GET {
                    self.set_effect();
                }
                return Ok(response);
            }
            let problem = problem_of(response).await?;
            if problem.code == Code::Stopping
                && self.daemon().is_some_and(|daemon| daemon.state.is_restarting())
            {
                self.set_lost();
            }
            if problem.code != Code::Busy || Instant::now() >= deadline {
                return Err(problem);
            }
            sleep(BUSY_RETRY_INTERVAL).await;
        }
    }

    fn request(&self, method: &Method, path: &str, body: Bytes) -> Result<Request<Body>, ApiProblem> {
        let mut request = Request::builder().method(method).uri(format!("/api/v1/{path}"));
        if let Self::Job { token, .. } = self {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        request
            .header(header::HOST, "cowhand")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(body))
            .map_err(|error| ApiProblem::bad_request(error.to_string()))
    }

    async fn parse_answer<T: DeserializeOwned>(&self, response: Response<Body>) -> Result<T, ApiProblem> {
        let bytes = self.read_all(success_body(response).await?).await?;
        let unreadable =
            |error| ApiProblem::unavailable(format!("the daemon's answer cannot be read: {error}"));
        serde_json::from_slice(&bytes).map_err(unreadable)
    }

    async fn read_all(&self, body: Body) -> Result<Bytes, ApiProblem> {
        read_all(body).await.inspect_err(|_| self.set_lost())
    }

    async fn send_once(&self, request: Request<Body>) -> Result<Response<Body>, ApiProblem> {
        let stream = match self {
            Self::Alone { router, person } => {
                let answer = router.clone().oneshot(request);
                let answer = match person {
                    Some(person) => audit::by(person.clone(), answer).await,
                    None => answer.await,
                };
                return match answer {
                    Ok(response) => Ok(response),
                    Err(never) => match never {},
                };
            }
            Self::Daemon(daemon) => Socket::connect(&daemon.state).await,
            Self::Job { socket, .. } => Socket::connect_at(socket).await,
        };
        let Some(stream) = stream.map_err(|error| cannot_connect(&error))? else {
            self.set_lost();
            return Err(ApiProblem::no_daemon());
        };
        let is_read = request.method() == Method::GET;
        let pid = stream.peer_cred().ok().and_then(|peer| peer.pid());
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .inspect_err(|_| self.set_lost())
            .map_err(|error| connection_failed(&error))?;
        tokio::spawn(connection);
        let answer = sender.send_request(request).inspect_err(|error| {
            self.set_lost();
            // A cancelled request was not sent.
            if !is_read && !error.is_canceled() {
                self.set_effect();
            }
        });
        let response = match self {
            Self::Daemon(daemon) => await_answer(&daemon.state, pid, answer).await?,
            // An agent waits for a person's answer without a time limit.
            Self::Job { .. } | Self::Alone { .. } => {
                answer.await.map_err(|error| connection_failed(&error))?
            }
        };
        Ok(response.map(Body::new))
    }
}

/// Describes a daemon that holds the state folder and cannot be reached.
fn no_socket(state: &StateFolder) -> String {
    let folder = state.path().display();
    if let Some(pid) = state.starting_process() {
        return format!(
            "the daemon (pid {pid}) of the state folder {folder} is starting, and does not answer yet. Try again later; its \
             log shows what it does, and `kill {pid}` ends it"
        );
    }
    let (daemon, process) = match state.lock_holder() {
        Some(pid) => (format!("a daemon (pid {pid})"), format!("kill {pid}")),
        None => ("a daemon".to_owned(), "kill PID".to_owned()),
    };
    format!(
        "{daemon} holds the state folder {folder}, but does not answer on its socket: it is starting or stopping, or its \
         socket was removed. Try again later; if it still does not answer, see its log, and end it with `{process}`, or \
         with `kill -KILL`, after which running jobs continue"
    )
}

/// Builds the problem for a socket that cannot be opened. If the user has no permission to open it, the message does
/// not mention the daemon, because it is not known whether one runs.
fn cannot_connect(error: &io::Error) -> ApiProblem {
    if error.kind() == io::ErrorKind::PermissionDenied {
        return ApiProblem::unavailable(error.to_string());
    }
    ApiProblem::unavailable(format!("cannot connect to the daemon: {error}"))
}

/// Builds the problem for a connection that failed before a complete answer.
pub(super) fn connection_failed(error: &dyn std::error::Error) -> ApiProblem {
    let message = format!("the daemon ended the connection before it had answered: {error}");
    ApiProblem::new(Code::NoDaemon, message)
}

/// Returns the body of an answer that is not a problem.
async fn success_body(response: Response<Body>) -> Result<Body, ApiProblem> {
    if response.status().is_success() {
        return Ok(response.into_body());
    }
    Err(problem_of(response).await?)
}

async fn problem_of(response: Response<Body>) -> Result<ApiProblem, ApiProblem> {
    let status = response.status();
    let bytes = read_all(response.into_body()).await?;
    let unparsed = |_| ApiProblem::unavailable(format!("{status}: {}", String::from_utf8_lossy(&bytes)));
    Ok(serde_json::from_slice(&bytes).unwrap_or_else(unparsed))
}

async fn read_all(body: Body) -> Result<Bytes, ApiProblem> {
    body.collect().await.map(http_body_util::Collected::to_bytes).map_err(|error| connection_failed(&error))
}

/// Answer that is read in whole lines, as they arrive.
#[derive(Debug)]
pub struct Lines {
    output_cursor: Option<OutputCursor>,
    body: Body,
    /// Bytes that arrived. Lines before `line_start` were already returned.
    buffer: Vec<u8>,
    /// Start of the next line in `buffer`.
    line_start: usize,
}

impl Lines {
    /// Returns the position in the output of jobs at which the answer begins, if the answer contains such output.
    pub fn output_cursor(&self) -> Option<&OutputCursor> {
        self.output_cursor.as_ref()
    }

    /// Returns the next line, or `None` at the end of the answer. An incomplete last line is not returned.
    pub async fn next(&mut self) -> Result<Option<String>, ApiProblem> {
        loop {
            if let Some(length) = memchr::memchr(b'\n', &self.buffer[self.line_start..]) {
                let line = String::from_utf8_lossy(&self.buffer[self.line_start..self.line_start + length])
                    .into_owned();
                self.line_start += length + 1;
                return Ok(Some(line));
            }
            self.buffer.drain(..self.line_start);
            self.line_start = 0;
            match self.body.frame().await {
                Some(Ok(frame)) => self.buffer.extend(frame.into_data().unwrap_or_default()),
                Some(Err(error)) => return Err(connection_failed(&error)),
                None => return Ok(None),
            }
        }
    }
}

/// Encodes a name as one segment of a path, or as a value in a query.
pub fn segment(text: &str) -> String {
    const UNESCAPED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');
    utf8_percent_encode(text, &UNESCAPED).to_string()
}

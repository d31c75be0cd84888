//! The other side of the API: through the daemon's socket, or, when none runs, straight into a router of our own.

use std::path::PathBuf;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Method, Request, Response, header};
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tower::ServiceExt;

use super::patience::answered;
use super::socket::Socket;
use super::{Api, Problem};
use cowhand_engine::state::StateFolder;
use cowhand_run::process::ProcessIdentity;

#[derive(Debug)]
pub enum Client {
    Daemon(StateFolder),
    /// With no more rights than a job has.
    Job {
        socket: PathBuf,
        token: String,
    },
    /// No daemon runs.
    Alone(Router),
}

impl Client {
    /// None if no daemon answers.
    pub async fn of_daemon(state: &StateFolder) -> Result<Option<Self>, Problem> {
        let stream = Socket::connect(state).await.map_err(|error| cut_off(&error))?;
        Ok(stream.map(|_| Self::Daemon(state.clone())))
    }

    /// Whether the last daemon stopped in order. One that was killed did not.
    pub fn daemon_has_stopped(state: &StateFolder) -> bool {
        Socket::is_removed(state)
    }

    /// The process that answers, to wait for its end; none if it cannot be seen from here, as one in a container.
    pub async fn process_of_daemon(state: &StateFolder) -> Option<ProcessIdentity> {
        let stream = Socket::connect(state).await.ok()??;
        ProcessIdentity::of(stream.peer_cred().ok()?.pid()?).ok()?
    }

    pub fn alone(api: Api) -> Self {
        Self::Alone(api.router())
    }

    /// Whether a daemon answers or not.
    pub fn of_job(socket: PathBuf, token: String) -> Self {
        Self::Job { socket, token }
    }

    pub fn is_alone(&self) -> bool {
        matches!(self, Self::Alone(_))
    }

    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Problem> {
        whole(self.send(Method::GET, path, Body::empty()).await?).await
    }

    pub async fn post<T: DeserializeOwned>(&self, path: &str, given: &impl Serialize) -> Result<T, Problem> {
        let body = serde_json::to_vec(given).map_err(|error| Problem::bad_request(error.to_string()))?;
        whole(self.send(Method::POST, path, Body::from(body)).await?).await
    }

    pub async fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, Problem> {
        whole(self.send(Method::DELETE, path, Body::empty()).await?).await
    }

    /// An answer in plain text.
    pub async fn text(&self, path: &str) -> Result<Bytes, Problem> {
        all(good(self.send(Method::GET, path, Body::empty()).await?).await?).await
    }

    /// Writes an answer that is a file.
    pub async fn download(&self, path: &str, file: &mut impl std::io::Write) -> Result<(), Problem> {
        let mut body = good(self.send(Method::GET, path, Body::empty()).await?).await?;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| cut_off(&error))?;
            let bytes = frame.into_data().unwrap_or_default();
            file.write_all(&bytes).map_err(|error| Problem::unavailable(format!("cannot write: {error}")))?;
        }
        Ok(())
    }

    /// An answer that comes line by line.
    pub async fn lines(&self, path: &str) -> Result<Lines, Problem> {
        let body = good(self.send(Method::GET, path, Body::empty()).await?).await?;
        Ok(Lines { body, held: Vec::new(), from: 0 })
    }

    async fn send(&self, method: Method, path: &str, body: Body) -> Result<Response<Body>, Problem> {
        let mut request = Request::builder().method(method).uri(format!("/api/v1/{path}"));
        if let Self::Job { token, .. } = self {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request
            .header(header::HOST, "cowhand")
            .header(header::CONTENT_TYPE, "application/json")
            .body(body)
            .map_err(|error| Problem::bad_request(error.to_string()))?;
        match self {
            Self::Alone(router) => match router.clone().oneshot(request).await {
                Ok(response) => Ok(response),
                Err(never) => match never {},
            },
            Self::Daemon(_) | Self::Job { .. } => {
                let stream = match self {
                    Self::Daemon(state) => Socket::connect(state).await,
                    Self::Job { socket, .. } => Socket::connect_at(socket).await,
                    Self::Alone(_) => Ok(None),
                };
                let stream = stream.map_err(|error| cut_off(&error))?;
                let stream = stream.ok_or_else(Problem::no_daemon)?;
                let pid = stream.peer_cred().ok().and_then(|peer| peer.pid());
                let stream = TokioIo::new(stream);
                let (mut sender, connection) =
                    hyper::client::conn::http1::handshake(stream).await.map_err(|error| cut_off(&error))?;
                tokio::spawn(connection);
                let answer = sender.send_request(request);
                let response = match self {
                    Self::Daemon(state) => answered(state, pid, answer).await?,
                    // An agent waits for a person's answer, however long that takes.
                    Self::Job { .. } | Self::Alone(_) => answer.await.map_err(|error| cut_off(&error))?,
                };
                Ok(response.map(Body::new))
            }
        }
    }
}

pub(super) fn cut_off(error: &dyn std::error::Error) -> Problem {
    Problem::unavailable(format!("the daemon did not answer: {error}"))
}

/// The body of an answer that is not a problem.
async fn good(response: Response<Body>) -> Result<Body, Problem> {
    if response.status().is_success() {
        return Ok(response.into_body());
    }
    let status = response.status();
    let bytes = all(response.into_body()).await?;
    let unknown = |_| Problem::unavailable(format!("{status}: {}", String::from_utf8_lossy(&bytes)));
    Err(serde_json::from_slice(&bytes).unwrap_or_else(unknown))
}

async fn whole<T: DeserializeOwned>(response: Response<Body>) -> Result<T, Problem> {
    let bytes = all(good(response).await?).await?;
    let unreadable = |error| Problem::unavailable(format!("the daemon's answer cannot be read: {error}"));
    serde_json::from_slice(&bytes).map_err(unreadable)
}

async fn all(body: Body) -> Result<Bytes, Problem> {
    body.collect().await.map(http_body_util::Collected::to_bytes).map_err(|error| cut_off(&error))
}

/// Whole lines of an answer, as they come.
#[derive(Debug)]
pub struct Lines {
    body: Body,
    held: Vec<u8>,
    /// Where in `held` the next line begins.
    from: usize,
}

impl Lines {
    /// None when the answer is over.
    pub async fn next(&mut self) -> Result<Option<String>, Problem> {
        loop {
            if let Some(length) = memchr::memchr(b'\n', &self.held[self.from..]) {
                let line = String::from_utf8_lossy(&self.held[self.from..self.from + length]).into_owned();
                self.from += length + 1;
                return Ok(Some(line));
            }
            self.held.drain(..self.from);
            self.from = 0;
            match self.body.frame().await {
                Some(Ok(frame)) => self.held.extend(frame.into_data().unwrap_or_default()),
                Some(Err(error)) => return Err(cut_off(&error)),
                None => return Ok(None),
            }
        }
    }
}

/// A name as one part of an address, or a value in its query.
pub fn segment(text: &str) -> String {
    const KEPT: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');
    utf8_percent_encode(text, &KEPT).to_string()
}

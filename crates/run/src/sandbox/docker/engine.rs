//! A client of the container engine's API, with one connection for each request.

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cowhand_core::duration;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::upgrade::Upgraded;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tokio::net::UnixStream;

/// Newest API version that cowhand uses. Newer engines support it; for an older engine, the version that the engine
/// states is used.
const NEWEST_API_VERSION: (u32, u32) = (1, 44);
/// Timeout of simple requests.
const SHORT_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of requests that do work: some engines copy an image for each container.
const LONG_TIMEOUT: Duration = Duration::from_mins(3);
/// Maximum size of an answer.
const MAX_ANSWER_BYTES: usize = 4 << 20;
/// Maximum length of an engine's message.
const MAX_MESSAGE_CHARS: usize = 1_000;
const ESCAPED_IN_PATHS: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Why the engine did not carry out a request.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error(
        "no engine listens at {}: start Docker or Podman (`podman system service`), or set its socket with `sandbox.socket` or DOCKER_HOST",
        .0.display()
    )]
    NotRunning(PathBuf),
    #[error("this user has no access to {}; add the user to the group of this socket (often `docker`)", .0.display())]
    Closed(PathBuf),
    #[error("the engine at {} does not answer within {}", .0.display(), duration::exact(*.1))]
    Timeout(PathBuf, Duration),
    #[error("the engine refused the request ({status}): {message}")]
    Refused { status: u16, message: String },
    #[error("the engine at {} gave an unexpected answer: {why}", .socket.display())]
    UnexpectedAnswer { socket: PathBuf, why: String },
}

#[derive(Debug, Clone, Copy)]
pub(super) enum AttachedStream {
    In,
    Out,
}

#[derive(Debug, Clone)]
pub struct ContainerEngine {
    socket: PathBuf,
    version: String,
    description: String,
}

impl ContainerEngine {
    /// Connects to the engine and agrees on an API version.
    pub async fn find(socket: &Path) -> Result<Self, EngineError> {
        let mut engine =
            Self { socket: socket.to_owned(), version: String::new(), description: String::new() };
        let answer = engine.within(SHORT_TIMEOUT, engine.send(Method::GET, "/_ping", None)).await?;
        let named = |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok());
        let version = named("api-version").unwrap_or_default().to_owned();
        let (major, minor) = parsed(&version).ok_or_else(|| {
            engine.unexpected_answer(format!("it names no version of the Docker API ({version:?})"))
        })?;
        engine.description = format!("{}, API {version}", named("server").unwrap_or("an engine"));
        let (major, minor) = (major, minor).min(NEWEST_API_VERSION);
        engine.version = format!("/v{major}.{minor}");
        Ok(engine)
    }

    /// Returns the name and version that the engine states.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Returns the name of the engine and its socket, for people.
    pub(super) fn location(&self) -> String {
        format!("at {} ({})", self.socket.display(), self.description)
    }

    /// Returns true for Podman, whose seccomp filter and init program differ from those of Docker.
    pub(super) fn is_podman(&self) -> bool {
        self.description.starts_with("Libpod")
    }

    /// Returns true if the engine runs without root. Then root in the container is the user outside.
    pub(super) async fn is_rootless(&self) -> Result<bool, EngineError> {
        let info = self.ask(Method::GET, "/info", None, LONG_TIMEOUT).await?;
        let options = info["SecurityOptions"].as_array().into_iter().flatten().filter_map(Value::as_str);
        Ok(options.into_iter().any(|option| option.contains("rootless")))
    }

    pub(super) async fn image(&self, name: &str) -> Result<(), EngineError> {
        let path = format!("/images/{}/json", utf8_percent_encode(name, ESCAPED_IN_PATHS));
        self.ask(Method::GET, &path, None, SHORT_TIMEOUT).await.map(|_| ())
    }

    pub(super) async fn create(&self, name: &str, container_spec: &Value) -> Result<(), EngineError> {
        self.ask(Method::POST, &format!("/containers/create?name={name}"), Some(container_spec), LONG_TIMEOUT)
            .await
            .map(|_| ())
    }

    pub(super) async fn start(&self, name: &str) -> Result<(), EngineError> {
        self.ask(Method::POST, &format!("/containers/{name}/start"), None, LONG_TIMEOUT).await.map(|_| ())
    }

    pub(super) async fn inspect(&self, name: &str) -> Result<Value, EngineError> {
        self.ask(Method::GET, &format!("/containers/{name}/json"), None, SHORT_TIMEOUT).await
    }

    /// Sends `TERM`, `INT` or `KILL`.
    pub(super) async fn signal(&self, name: &str, signal: &str) -> Result<(), EngineError> {
        let path = format!("/containers/{name}/kill?signal=SIG{signal}");
        self.ask(Method::POST, &path, None, SHORT_TIMEOUT).await.map(|_| ())
    }

    pub(super) async fn pause(&self, name: &str) -> Result<(), EngineError> {
        self.ask(Method::POST, &format!("/containers/{name}/pause"), None, SHORT_TIMEOUT).await.map(|_| ())
    }

    /// Lets a paused container continue.
    pub(super) async fn resume(&self, name: &str) -> Result<(), EngineError> {
        self.ask(Method::POST, &format!("/containers/{name}/unpause"), None, SHORT_TIMEOUT).await.map(|_| ())
    }

    /// Waits for the exit code.
    pub(super) async fn wait(&self, name: &str) -> Result<i64, EngineError> {
        let answer = self.send(Method::POST, &format!("/containers/{name}/wait"), None).await?;
        let answer = self.read(answer).await?;
        answer["StatusCode"]
            .as_i64()
            .ok_or_else(|| self.unexpected_answer(format!("no exit code in {answer}")))
    }

    /// Removes a container with its volumes, and returns whether it existed.
    pub(super) async fn remove(&self, name: &str) -> Result<bool, EngineError> {
        let path = format!("/containers/{name}?force=true&v=true");
        match self.ask(Method::DELETE, &path, None, LONG_TIMEOUT).await {
            Err(EngineError::Refused { status: 404, .. }) => Ok(false),
            removed => removed.map(|_| true),
        }
    }

    /// Returns the ids of all containers with this label and value, including ended ones, each with its value of
    /// `value_label`.
    pub(super) async fn labelled(
        &self,
        label: &str,
        value: &str,
        value_label: &str,
    ) -> Result<Vec<(String, String)>, EngineError> {
        let filters = serde_json::json!({ "label": [format!("{label}={value}")] }).to_string();
        let path =
            format!("/containers/json?all=true&filters={}", utf8_percent_encode(&filters, NON_ALPHANUMERIC));
        let found = self.ask(Method::GET, &path, None, SHORT_TIMEOUT).await?;
        let found =
            found.as_array().ok_or_else(|| self.unexpected_answer("no list of containers".to_owned()))?;
        let id_and_value = |container: &Value| {
            Some((
                container["Id"].as_str()?.to_owned(),
                container["Labels"][value_label].as_str()?.to_owned(),
            ))
        };
        Ok(found.iter().filter_map(id_and_value).collect())
    }

    /// Attaches to the output or the input of a container. Each has its own connection, because Podman loses output on
    /// a shared connection if the container does not read its input. Podman sends the output to both connections and
    /// waits until it is read, so the caller has to read both.
    pub(super) async fn attach(
        &self,
        name: &str,
        stream: AttachedStream,
    ) -> Result<TokioIo<Upgraded>, EngineError> {
        let streams = match stream {
            AttachedStream::In => "stdin=1&stdout=1&stderr=1",
            AttachedStream::Out => "stdout=1&stderr=1",
        };
        let path = format!("/containers/{name}/attach?stream=1&{streams}");
        let answer = self.within(SHORT_TIMEOUT, self.send(Method::POST, &path, None)).await?;
        if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            self.within(SHORT_TIMEOUT, self.read(answer)).await?;
            return Err(self.unexpected_answer("it refused to attach to the container's output".to_owned()));
        }
        let upgrade = async {
            hyper::upgrade::on(answer).await.map_err(|error| self.unexpected_answer(error.to_string()))
        };
        Ok(TokioIo::new(self.within(SHORT_TIMEOUT, upgrade).await?))
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        timeout: Duration,
    ) -> Result<Value, EngineError> {
        let answered = async { self.read(self.send(method, path, body).await?).await };
        self.within(timeout, answered).await
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Response<Incoming>, EngineError> {
        let stream = UnixStream::connect(&self.socket).await.map_err(|error| self.unreached(&error))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.unexpected_answer(error.to_string()))?;
        // The task ends with the answer, or with the upgraded connection.
        tokio::spawn(connection.with_upgrades());
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.version))
            .header(header::HOST, "docker")
            .header(header::CONTENT_TYPE, "application/json");
        if path.contains("/attach?") {
            request = request.header(header::CONNECTION, "Upgrade").header(header::UPGRADE, "tcp");
        }
        let body = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let request =
            request.body(Full::new(body)).map_err(|error| self.unexpected_answer(error.to_string()))?;
        sender.send_request(request).await.map_err(|error| self.unexpected_answer(error.to_string()))
    }

    /// Reads an answer. An empty answer is null.
    async fn read(&self, answer: Response<Incoming>) -> Result<Value, EngineError> {
        let status = answer.status();
        let body = Limited::new(answer.into_body(), MAX_ANSWER_BYTES).collect().await;
        let body = body.map_err(|error| self.unexpected_answer(error.to_string()))?.to_bytes();
        // 304 means that the state is already as requested.
        if !status.is_success() && status != StatusCode::NOT_MODIFIED {
            return Err(EngineError::Refused { status: status.as_u16(), message: refusal_message(&body) });
        }
        if body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&body).map_err(|error| self.unexpected_answer(error.to_string()))
    }

    async fn within<T>(
        &self,
        timeout: Duration,
        answer: impl Future<Output = Result<T, EngineError>>,
    ) -> Result<T, EngineError> {
        let silent = |_| EngineError::Timeout(self.socket.clone(), timeout);
        tokio::time::timeout(timeout, answer).await.map_err(silent)?
    }

    fn unreached(&self, error: &io::Error) -> EngineError {
        let socket = self.socket.clone();
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => EngineError::NotRunning(socket),
            io::ErrorKind::PermissionDenied => EngineError::Closed(socket),
            _ => EngineError::UnexpectedAnswer { socket, why: error.to_string() },
        }
    }

    fn unexpected_answer(&self, why: String) -> EngineError {
        EngineError::UnexpectedAnswer { socket: self.socket.clone(), why }
    }
}

fn parsed(version: &str) -> Option<(u32, u32)> {
    let (major, minor) = version.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Returns the message of a refusal: `message` of its JSON, or the whole body.
fn refusal_message(body: &[u8]) -> String {
    let message = serde_json::from_slice::<Value>(body).ok();
    let message = message.and_then(|body| body["message"].as_str().map(str::to_owned));
    let message = message.unwrap_or_else(|| String::from_utf8_lossy(body).into_owned());
    message
        .trim()
        .chars()
        .take(MAX_MESSAGE_CHARS)
        .map(|sign| if sign.is_control() { ' ' } else { sign })
        .collect()
}

/// Runs a future on a new thread, for synchronous callers.
pub(super) fn block_on_new_thread<T: Send>(work: impl Future<Output = T> + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            Ok(runtime.block_on(work))
        });
        thread.join().unwrap_or_else(|_| Err(io::Error::other("asking the engine panicked")))
    })
}

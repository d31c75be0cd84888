//! `cowhand contain FOLDER`: runs the attempt of this folder in a container, and exits with the container's status.

use std::cell::Cell;
use std::convert::Infallible;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cowhand_core::sandbox::Caps;
use futures_util::FutureExt;
use serde_json::Value;
use tokio::io::{AsyncWrite, AsyncWriteExt, split};
use tokio::net::unix::pipe;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::DockerError;
use super::container_spec::ContainerSpec;
use super::engine::{AttachedStream, ContainerEngine, EngineError};
use super::frames::FrameError;
use super::leftover::{self, Record};
use super::limits::{ContainerEnd, LimitWatch};
use super::{filter, frames};
use crate::attempt::{Attempt, PROMPT_FILE};
use crate::sandbox::EXIT_CANNOT_START;
use crate::start::{ContainerSettings, SandboxPlan, StartSpec};
use cowhand_system::stderr;

pub(in crate::sandbox) const CONTAIN_VERB: &str = "contain";

/// Exit code that Docker uses if the container's own exit code is unknown.
const EXIT_LOST: u8 = 125;
const EXIT_TERMINATED: u8 = 128 + 15;

/// Runs the attempt of this folder in a container. Returns the exit code of the container, or `EXIT_LOST`,
/// `EXIT_CANNOT_START` or `EXIT_TERMINATED`.
pub fn contain(folder: &Path) -> ExitCode {
    let done = Attempt::at(folder).map_err(|error| error.to_string()).and_then(|attempt| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let ended = runtime.map_err(|error| error.to_string())?.block_on(run(&attempt));
        ended.or_else(|failure| failure.report(&attempt))
    });
    done.map_or_else(
        |why| {
            stderr::write_line(format!("cowhand: {why}"));
            ExitCode::from(EXIT_LOST)
        },
        ExitCode::from,
    )
}

/// Why there is no exit code of the agent.
enum Failure {
    /// The agent has not run.
    NotStarted(String),
    /// The agent may have run, and how it ended is not known.
    Lost(String),
}

impl Failure {
    fn report(self, attempt: &Attempt) -> Result<u8, String> {
        match self {
            Self::NotStarted(why) => {
                attempt
                    .refuse(&why)
                    .map_err(|error| format!("{why}; and the refusal cannot be written: {error}"))?;
                Ok(EXIT_CANNOT_START)
            }
            Self::Lost(why) => {
                attempt
                    .note_container_loss(&why)
                    .map_err(|error| format!("{why}; and the reason cannot be written: {error}"))?;
                Err(why)
            }
        }
    }
}

/// Stop signals. They are caught before anything else happens.
struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    fn catch() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "TERM",
            _ = self.interrupt.recv() => "INT",
        }
    }
}

async fn run(attempt: &Attempt) -> Result<u8, Failure> {
    let not_started =
        |why: String| Failure::NotStarted(format!("`sandbox: docker` cannot be enforced: {why}"));
    let mut stop_signals = StopSignals::catch().map_err(|error| not_started(error.to_string()))?;
    let mut start = attempt.start().map_err(|error| not_started(error.to_string()))?;
    let sandbox = start.sandbox.take().unwrap_or_default();
    let contained =
        sandbox.container.clone().ok_or_else(|| not_started("its start.json names no container".into()))?;
    let record = Record { socket: contained.socket.clone(), name: name(&contained, attempt) };
    record.write(attempt).map_err(|error| not_started(error.to_string()))?;
    let engine =
        ContainerEngine::find(&contained.socket).await.map_err(|error| not_started(error.to_string()))?;
    let name = record.name.as_str();
    let ended = match begin(&engine, name, attempt, &start, &sandbox, &contained, &mut stop_signals).await {
        Ok(Some(streams)) => follow(&engine, name, attempt, &sandbox.caps, streams, stop_signals).await,
        Ok(None) => Ok(EXIT_TERMINATED),
        Err(why) => Err(not_started(why.to_string())),
    };
    match leftover::end(&engine, name).await {
        // The keeper tries to remove the container again.
        Err(error) => {
            stderr::write_line(format!("cowhand: the container {name} was not removed: {error}"));
        }
        Ok(_) => Record::remove(attempt).map_err(|error| Failure::Lost(error.to_string()))?,
    }
    ended
}

/// Returns the name of the container, from the fleet and the attempt.
fn name(contained: &ContainerSettings, attempt: &Attempt) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, contained.state.as_os_str().as_encoded_bytes());
    let fleet = digest.as_ref().first_chunk().copied().map(u32::from_be_bytes).unwrap_or_default();
    format!("cowhand-{fleet:08x}-{}", attempt.name())
}

type Stream = hyper_util::rt::TokioIo<hyper::upgrade::Upgraded>;

/// Input of a container.
enum ContainerInput {
    Prompt(Vec<u8>),
    /// The pipe on stdin, which the keeper feeds.
    Fed,
}

struct Streams {
    /// Connection to the container's output.
    output: Stream,
    /// Connection to the container's input, and what is sent on it; `None` without input.
    input: Option<(Stream, ContainerInput)>,
}

/// Creates the container, attaches to it and starts it. Returns `None` if a stop was requested before the start; then
/// the container is not started.
async fn begin(
    engine: &ContainerEngine,
    name: &str,
    attempt: &Attempt,
    start: &StartSpec,
    sandbox: &SandboxPlan,
    contained: &ContainerSettings,
    stop_signals: &mut StopSignals,
) -> Result<Option<Streams>, DockerError> {
    let nothing = attempt.folder().join("nothing");
    DirBuilder::new().recursive(true).mode(0o700).create(&nothing)?;
    let input = match start.input {
        Some(_) => Some(ContainerInput::Fed),
        None => Some(fs::read(attempt.folder().join(PROMPT_FILE))?)
            .filter(|prompt| !prompt.is_empty())
            .map(ContainerInput::Prompt),
    };
    let filter = if engine.is_podman() { Some(filter::write(attempt.folder())?) } else { None };
    let environment: Vec<(String, String)> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let user = if engine.is_rootless().await? { "0:0".to_owned() } else { own_ids() };
    let mut spec = ContainerSpec {
        start,
        sandbox,
        contained,
        attempt: attempt.name(),
        nothing: &nothing,
        environment: &environment,
        user: &user,
        filter: filter.as_deref(),
        prompted: input.is_some(),
        init: engine.is_podman() || !hides_init(sandbox),
    };
    match create(engine, name, &spec.body()?).await {
        // Some engines have no init program for containers.
        Err(EngineError::Refused { message, .. })
            if message.contains("init binary") || message.contains("docker-init") =>
        {
            spec.init = false;
            create(engine, name, &spec.body()?).await?;
        }
        created => created?,
    }
    let output = engine.attach(name, AttachedStream::Out).await?;
    let input = match input {
        Some(input) => Some((engine.attach(name, AttachedStream::In).await?, input)),
        None => None,
    };
    if stop_signals.next().now_or_never().is_some() {
        return Ok(None);
    }
    engine.start(name).await?;
    Ok(Some(Streams { output, input }))
}

/// Creates the container. The name belongs to this attempt only, so an existing container of this name is a leftover
/// and is removed.
async fn create(engine: &ContainerEngine, name: &str, container_spec: &Value) -> Result<(), EngineError> {
    match engine.create(name, container_spec).await {
        Err(EngineError::Refused { status: 409, .. }) => {
            leftover::end(engine, name).await?;
            engine.create(name, container_spec).await
        }
        created => created,
    }
}

/// Returns true if a mount covers `/sbin`, where Docker puts its init program. Then the init program cannot be started.
fn hides_init(sandbox: &SandboxPlan) -> bool {
    let over = |path: &PathBuf| ["/sbin", "/usr/sbin"].iter().any(|sbin| Path::new(sbin).starts_with(path));
    sandbox.read.iter().chain(&sandbox.write).any(over)
}

fn own_ids() -> String {
    format!("{}:{}", rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw())
}

/// Forwards output, input and signals until the container has ended.
async fn follow(
    engine: &ContainerEngine,
    name: &str,
    attempt: &Attempt,
    caps: &Caps,
    streams: Streams,
    mut stop_signals: StopSignals,
) -> Result<u8, Failure> {
    let lost = |why: String| {
        let engine = engine.location();
        Failure::Lost(format!(
            "the connection to the container engine {engine} was lost, so the agent was ended: {why}"
        ))
    };
    let unwritten = |error: io::Error| {
        Failure::Lost(format!("the container's output cannot be written, so the agent was ended: {error}"))
    };
    let open = |name: &str| attempt.append(name).map_err(unwritten);
    let (stdout, stderr) = (open("stdout")?, open("stderr")?);
    let mut limits = LimitWatch::new(engine, name, attempt, caps).await;
    let is_stopped = Cell::new(false);
    let forward_signals = async {
        loop {
            let signal = stop_signals.next().await;
            is_stopped.set(true);
            if let Err(error) = engine.signal(name, signal).await {
                stderr::write_line(format!("cowhand: SIG{signal} was not sent to the container: {error}"));
            }
        }
    };
    let copied = tokio::select! {
        copied = frames::copy(streams.output, stdout, stderr) => copied,
        never = send_input(streams.input) => match never {},
        never = forward_signals => never,
        never = limits.watch() => match never {},
    };
    // The output ends with the last process, before the engine removes the counters.
    let killed = limits.check();
    copied.map_err(|broken| match broken {
        FrameError::Write(error) => unwritten(error),
        FrameError::Cut | FrameError::NoFrame | FrameError::Read(_) => {
            lost(format!("the container's output: {broken}"))
        }
    })?;
    let code = engine.wait(name).await.map_err(|error| lost(error.to_string()))?;
    let end = ContainerEnd { code, is_stopped: is_stopped.get(), killed };
    limits.check_after_end(engine, name, end).await;
    Ok(u8::try_from(code & 0xff).unwrap_or(EXIT_LOST))
}

/// Copies the input that the keeper feeds, until the keeper closes it.
async fn copy_stdin(stream: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
    // Not `tokio::io::stdin`, whose thread would block the end of this program.
    let stdin = std::os::fd::AsFd::as_fd(&io::stdin()).try_clone_to_owned()?;
    let mut stdin = pipe::Receiver::from_owned_fd(stdin)?;
    tokio::io::copy(&mut stdin, stream).await.map(drop)
}

/// Writes the input and keeps the connection open, because closing it could close the output connection.
async fn send_input(input: Option<(Stream, ContainerInput)>) -> Infallible {
    if let Some((stream, input)) = input {
        let (mut back, mut stream) = split(stream);
        let send = async {
            // The agent may have closed its stdin.
            match input {
                ContainerInput::Prompt(prompt) => stream.write_all(&prompt).await.ok(),
                ContainerInput::Fed => copy_stdin(&mut stream).await.ok(),
            };
            stream.shutdown().await.ok();
        };
        // The output is read on the other connection.
        let mut nobody = tokio::io::sink();
        tokio::join!(send, tokio::io::copy(&mut back, &mut nobody)).1.ok();
        std::future::pending::<()>().await;
    }
    std::future::pending().await
}

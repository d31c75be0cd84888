//! Errors of containers.

use std::io;
use std::path::PathBuf;

use super::engine::EngineError;

/// Why a container cannot be created, run or removed. The message is for people.
#[derive(Debug, thiserror::Error)]
pub enum DockerError {
    #[error("`sandbox.socket` has to be the absolute path of a Unix socket, not {0}")]
    NotAPath(String),
    #[error(
        "DOCKER_HOST does not name a Unix socket (unix://…), and only an engine on this machine has the agent's files"
    )]
    NotLocal,
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(
        "the default image {0} does not exist on this machine: build it as herdctl's documentation says, or set `docker: {{image: …}}` in the fleet file, under `defaults` or the agent's `overrides`"
    )]
    NoDefaultImage(String),
    #[error("the image {0} does not exist on this machine; run `docker pull {0}` or `podman pull {0}`")]
    NoImage(String),
    #[error(
        "Podman's seccomp filter was not found at {0}, so the kernel's keys and VSOCK cannot be hidden from the agent"
    )]
    NoFilter(&'static str),
    #[error(
        "Podman's seccomp filter has an unknown form, so the kernel's keys and VSOCK cannot be hidden from the agent"
    )]
    UnknownFilter,
    #[error("{} cannot be written: {error}", file.display())]
    FilterNotWritten { file: PathBuf, error: io::Error },
    #[error("{} cannot be bound into a container: its path contains a comma, a quote or a control character, or is not UTF-8", .0.display())]
    UnmountablePath(PathBuf),
    #[error("a container of the attempt may still exist, and its name is unknown: {}: {error}", file.display())]
    UnknownName { file: PathBuf, error: io::Error },
    #[error("the container {name} of the attempt may still exist: {error}")]
    NotRemoved { name: String, error: EngineError },
    #[error("the container {name} of the attempt: {error}")]
    NotPaused { name: String, error: EngineError },
    #[error("the container of {attempt}: {error}")]
    NotSwept { attempt: String, error: EngineError },
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Thread(#[from] tokio::task::JoinError),
}

//! Errors of containers.

use std::io;
use std::path::PathBuf;

use super::engine::EngineError;

/// Why a container cannot be created, run or removed. The message is for people.
#[derive(Debug, thiserror::Error)]
pub enum DockerError {
    #[error("`sandbox.socket` has to be the whole path of a Unix socket, and not {0}")]
    NotAPath(String),
    #[error(
        "DOCKER_HOST does not name a Unix socket (unix://…), and only an engine on this machine has the agent's files"
    )]
    NotLocal,
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(
        "the image {0}, which counts where `docker.image` names none, is not there: build it as herdctl's documentation says, or set `docker: {{image: …}}` in the fleet file, under `defaults` or the agent's `overrides`"
    )]
    NoDefaultImage(String),
    #[error(
        "the image {0} is not there, and cowhand fetches none: `docker pull {0}` or `podman pull {0}` does"
    )]
    NoImage(String),
    #[error(
        "Podman's seccomp filter is not there ({0}), so the kernel's keys and VSOCK cannot be kept from the agent"
    )]
    NoFilter(&'static str),
    #[error(
        "Podman's seccomp filter is not understood, so the kernel's keys and VSOCK cannot be kept from the agent"
    )]
    StrangeFilter,
    #[error("{} cannot be written: {error}", file.display())]
    FilterNotWritten { file: PathBuf, error: io::Error },
    #[error("{} cannot be bound into a container: its name has odd signs in it", .0.display())]
    OddName(PathBuf),
    #[error("its container may still be there, and nobody knows its name: {}: {error}", file.display())]
    UnknownName { file: PathBuf, error: io::Error },
    #[error("its container {name} may still be there: {error}")]
    NotRemoved { name: String, error: EngineError },
    #[error("the container of {attempt}: {error}")]
    NotSwept { attempt: String, error: EngineError },
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Thread(#[from] tokio::task::JoinError),
}

//! Containers: the agent runs in a container of an engine with Docker's API, on a Unix socket of this machine.
//!
//! The processes of a container are not children of the keeper. So the keeper starts `cowhand contain` (`contain`),
//! which asks the engine to create the container, forwards input and output, and exits with the container's status. The
//! container is recorded in the attempt's folder before it is created (`leftover`), so that a later process can find
//! and remove it.

pub mod contain;
mod container_spec;
pub mod engine;
mod error;
mod filter;
mod frames;
pub mod leftover;
mod limits;

use std::path::{Path, PathBuf};

use cowhand_core::sandbox::{Container, DEFAULT_IMAGE};

use crate::start::ContainerSettings;
use engine::{ContainerEngine, EngineError};
pub use error::DockerError;

/// Default sockets of Docker and Podman that run as root.
const SYSTEM_SOCKETS: [&str; 2] = ["/var/run/docker.sock", "/run/podman/podman.sock"];
/// Default sockets of Docker and Podman that run without root, in the folder `XDG_RUNTIME_DIR`.
const USER_SOCKETS: [&str; 2] = ["docker.sock", "podman/podman.sock"];

/// Returns the engine's socket: from the config, from `DOCKER_HOST`, or the first default socket that exists. If none
/// exists, returns the default socket of Docker.
pub fn socket(requested: &Container) -> Result<PathBuf, DockerError> {
    if let Some(socket) = &requested.socket {
        let path = Container::socket_path(socket).map(Path::to_owned);
        return path.ok_or_else(|| DockerError::NotAPath(socket.clone()));
    }
    if let Some(host) = std::env::var("DOCKER_HOST").ok().filter(|host| !host.is_empty()) {
        return host.strip_prefix("unix://").map(PathBuf::from).ok_or(DockerError::NotLocal);
    }
    Ok(default_sockets().find(|place| place.exists()).unwrap_or_else(|| PathBuf::from(SYSTEM_SOCKETS[0])))
}

fn default_sockets() -> impl Iterator<Item = PathBuf> {
    let user_folders = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).into_iter();
    let user_folders = user_folders.flat_map(|folder| USER_SOCKETS.map(|place| folder.join(place)));
    SYSTEM_SOCKETS.iter().map(PathBuf::from).chain(user_folders)
}

/// Returns the possible sockets of engines. A process that can use such a socket controls the machine or
/// all files of this user.
pub(super) fn sockets(requested: &Container) -> impl Iterator<Item = PathBuf> {
    default_sockets().chain(socket(requested).ok())
}

/// Checks that a container could be created now: the engine answers and has the image.
pub async fn ready(contained: &ContainerSettings) -> Result<(), DockerError> {
    has_image(&contained.socket, &contained.image).await.map(|_| ())
}

/// Checks the image, and returns the engine's description.
async fn has_image(socket: &Path, image: &str) -> Result<String, DockerError> {
    let engine = ContainerEngine::find(socket).await?;
    match engine.image(image).await {
        Ok(()) => Ok(engine.description().to_owned()),
        Err(EngineError::Refused { status: 404, .. }) if image == DEFAULT_IMAGE => {
            Err(DockerError::NoDefaultImage(image.to_owned()))
        }
        Err(EngineError::Refused { status: 404, .. }) => Err(DockerError::NoImage(image.to_owned())),
        Err(error) => Err(error.into()),
    }
}

/// Describes the engine for people, after a check that it has the image of the container.
pub fn ability(container: &Container) -> Result<String, DockerError> {
    let describe = async {
        let socket = socket(container)?;
        let description = match &container.image {
            Some(image) => has_image(&socket, image).await?,
            None => ContainerEngine::find(&socket).await?.description().to_owned(),
        };
        Ok::<_, DockerError>(format!("{description} at {}", socket.display()))
    };
    engine::block_on_new_thread(describe)?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_absolute_paths_of_unix_sockets_are_accepted() {
        let at =
            |socket: &str| self::socket(&Container { socket: Some(socket.into()), ..Container::default() });
        assert_eq!(at("/run/x.sock").unwrap(), Path::new("/run/x.sock"));
        assert_eq!(at("unix:///run/x.sock").unwrap(), Path::new("/run/x.sock"));
        for wrong in ["x.sock", "tcp://10.0.0.1:2375"] {
            assert!(
                at(wrong).unwrap_err().to_string().contains("the absolute path of a Unix socket"),
                "{wrong}"
            );
        }
    }
}

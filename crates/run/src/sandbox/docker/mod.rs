//! Containers: the agent runs in one of an engine that speaks Docker's API, on a Unix socket of this machine.
//!
//! The engine's processes are not the keeper's children. So what the keeper starts is `cowhand contain` (`contain`), which
//! has the engine make the container, carries what is said between the two, and ends as the container does. Which one it
//! is stands in the attempt's folder before it is made (`leftover`): whoever comes after finds it and ends it.

pub mod contain;
mod container_spec;
pub mod engine;
mod filter;
mod frames;
pub mod leftover;
mod limits;

use std::path::{Path, PathBuf};

use cowhand_core::sandbox::Container;
use cowhand_core::shape::DEFAULT_IMAGE;

use crate::start::Contained;
use engine::{ContainerEngine, EngineError};

/// Where engines listen if nobody says where: Docker, Podman, and both without root.
const SYSTEM_SOCKETS: [&str; 2] = ["/var/run/docker.sock", "/run/podman/podman.sock"];
const USER_SOCKETS: [&str; 2] = ["docker.sock", "podman/podman.sock"];

const NO_LOCAL_ENGINE: &str = "DOCKER_HOST does not name a Unix socket (unix://…), and only an engine on this machine has the agent's files";

/// The engine's socket: the config's, the environment's, or the first of the usual ones that is there.
pub fn socket(asked: &Container) -> Result<PathBuf, String> {
    if let Some(socket) = &asked.socket {
        let path = Path::new(socket.strip_prefix("unix://").unwrap_or(socket));
        return path.is_absolute().then(|| path.to_owned()).ok_or_else(|| {
            format!("`sandbox.socket` has to be the whole path of a Unix socket, and not {socket}")
        });
    }
    if let Some(host) = std::env::var("DOCKER_HOST").ok().filter(|host| !host.is_empty()) {
        return host.strip_prefix("unix://").map(PathBuf::from).ok_or_else(|| NO_LOCAL_ENGINE.to_owned());
    }
    Ok(places().find(|place| place.exists()).unwrap_or_else(|| PathBuf::from(SYSTEM_SOCKETS[0])))
}

fn places() -> impl Iterator<Item = PathBuf> {
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).into_iter();
    let own = own.flat_map(|folder| USER_SOCKETS.map(|place| folder.join(place)));
    SYSTEM_SOCKETS.iter().map(PathBuf::from).chain(own)
}

/// Sockets that are here; whoever reaches one owns the machine, or all that is this user's.
pub(super) fn sockets(asked: &Container) -> impl Iterator<Item = PathBuf> {
    places().chain(socket(asked).ok())
}

/// Whether a container could be made now: the engine answers and has the image.
pub async fn ready(contained: &Contained) -> Result<(), String> {
    has_image(&contained.socket, &contained.image).await.map(|_| ())
}

/// With what the engine says about itself.
async fn has_image(socket: &Path, image: &str) -> Result<String, String> {
    let engine = ContainerEngine::find(socket).await.map_err(|trouble| trouble.to_string())?;
    match engine.image(image).await {
        Ok(()) => Ok(engine.said().to_owned()),
        Err(EngineError::Refused { status: 404, .. }) if image == DEFAULT_IMAGE => Err(format!(
            "the image {image}, which counts where `docker.image` names none, is not there: build it as herdctl's documentation says, or set `docker: {{image: …}}` in the fleet file, under `defaults` or the agent's `overrides`"
        )),
        Err(EngineError::Refused { status: 404, .. }) => Err(format!(
            "the image {image} is not there, and cowhand fetches none: `docker pull {image}` or `podman pull {image}` does"
        )),
        Err(trouble) => Err(trouble.to_string()),
    }
}

/// For people: what there is to be said about this engine and these images.
pub fn ability(asked: &[&Container]) -> Result<String, String> {
    let look = async |container: &Container| -> Result<String, String> {
        let socket = socket(container)?;
        let said = match &container.image {
            Some(image) => has_image(&socket, image).await?,
            None => {
                ContainerEngine::find(&socket).await.map_err(|trouble| trouble.to_string())?.said().to_owned()
            }
        };
        Ok(format!("{said} at {}", socket.display()))
    };
    let all = async {
        let mut said = look(&Container::default()).await;
        for container in asked {
            said = Ok(look(container).await?);
        }
        said
    };
    engine::at_once(all).map_err(|error| error.to_string())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_socket_of_this_machine() {
        let at =
            |socket: &str| self::socket(&Container { socket: Some(socket.into()), ..Container::default() });
        assert_eq!(at("/run/x.sock"), Ok("/run/x.sock".into()));
        assert_eq!(at("unix:///run/x.sock"), Ok("/run/x.sock".into()));
        for wrong in ["x.sock", "tcp://10.0.0.1:2375"] {
            assert!(at(wrong).unwrap_err().contains("the whole path of a Unix socket"), "{wrong}");
        }
    }
}

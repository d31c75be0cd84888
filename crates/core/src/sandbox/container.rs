//! Settings that only containers have. Most of them come from herdctl's key `docker`.

use std::collections::BTreeMap;
use std::path::Path;

use super::SandboxRules;

/// Default image of herdctl. No registry has this image: its users build it.
pub const DEFAULT_IMAGE: &str = "herdctl/runtime:latest";

/// A container with its sandbox rules and the settings that rules do not have.
#[derive(Debug, Clone, PartialEq)]
pub struct ContainerSandbox {
    pub rules: SandboxRules,
    /// Settings of the container. Its image is used if the rules name none.
    pub container: Container,
}

/// Requested settings of a container. None of them is secret.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Container {
    pub image: Option<String>,
    /// Socket of the container engine, if configured.
    pub socket: Option<String>,
    /// User, `1000` or `1000:1000`; unset means the user of cowhand.
    pub user: Option<String>,
    /// True if the working directory is read-only.
    pub read_only: bool,
    /// Temporary file systems, `/path` or `/path:options`.
    pub tmpfs: Vec<String>,
    pub labels: BTreeMap<String, String>,
    pub volumes: Vec<Volume>,
    pub cpu_shares: Option<u64>,
    /// True if a container with network access uses the network of the machine.
    pub host_network: bool,
    /// Sentence about a requested setting that is not supported.
    pub refused: Option<&'static str>,
}

/// A folder or file of the machine, and its path inside the container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    pub from: String,
    pub to: String,
    pub writable: bool,
}

impl Container {
    /// Returns the path of a configured socket, `/path` or `unix:///path`; none if it has another form.
    pub fn socket_path(socket: &str) -> Option<&Path> {
        let path = Path::new(socket.strip_prefix("unix://").unwrap_or(socket));
        path.is_absolute().then_some(path)
    }

    /// Returns these settings with the image and the socket of `other`, if it sets them.
    #[must_use]
    pub fn over(&self, other: Self) -> Self {
        Self {
            image: other.image.or_else(|| self.image.clone()),
            socket: other.socket.or_else(|| self.socket.clone()),
            ..self.clone()
        }
    }

    pub(super) const fn contradiction(&self) -> Option<&'static str> {
        if self.refused.is_some() {
            return self.refused;
        }
        if self.image.is_none() {
            return Some("`docker` needs the image of its container, for example `image: node:22`");
        }
        None
    }
}

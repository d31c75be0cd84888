//! What only a container has. Most of it comes from herdctl's key `docker`.

use std::collections::BTreeMap;

/// As it is asked for; nothing of it is secret.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Container {
    pub image: Option<String>,
    /// Where the engine listens, if the config says it.
    pub socket: Option<String>,
    /// `1000` or `1000:1000`; unset means whoever cowhand runs as.
    pub user: Option<String>,
    /// The directory it works in can only be read.
    pub read_only: bool,
    /// `/path` or `/path:options`.
    pub tmpfs: Vec<String>,
    pub labels: BTreeMap<String, String>,
    pub volumes: Vec<Volume>,
    pub cpu_shares: Option<u64>,
    /// If it reaches anybody, then from the machine's own network.
    pub host_network: bool,
    /// What was asked for and cannot be had, in a sentence.
    pub refused: Option<&'static str>,
}

/// A folder or file of the machine, and where it is found inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    pub from: String,
    pub to: String,
    pub written: bool,
}

impl Container {
    pub(super) const fn contradiction(&self) -> Option<&'static str> {
        if self.refused.is_some() {
            return self.refused;
        }
        if self.image.is_none() {
            return Some("`docker` needs `image`: what its container is made of, such as `image: node:22`");
        }
        None
    }
}

//! `start.json`: what the keeper runs, and the sandbox that it runs in.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cowhand_core::sandbox::{Caps, Reaches, SandboxKind};
use serde::{Deserialize, Serialize};

use super::process::StopSignal;
use super::runtime::Reader;
use super::runtime::description::OWN_PROGRAM;

/// What the keeper is to run. The environment is not written down, since it may hold secrets: the keeper gets it
/// as its own and hands it on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StartSpec {
    pub argv: Vec<String>,
    pub directory: PathBuf,
    pub stop_signal: StopSignal,
    /// From the stop signal to the kill.
    pub grace_ms: u64,
    /// Who reads its output, as it was when nothing was read yet: the config may have changed since.
    #[serde(default)]
    pub reader: Option<Reader>,
    #[serde(default)]
    pub limits: Option<KeeperLimits>,
    /// What holds it, if anything does.
    #[serde(default)]
    pub enclosure: Option<SandboxPlan>,
}

impl StartSpec {
    /// With that program in its place.
    #[must_use]
    pub fn by(&self, program: &Path) -> Self {
        let mut start = self.clone();
        if let Some(first) = start.argv.first_mut().filter(|first| *first == OWN_PROGRAM) {
            *first = program.display().to_string();
        }
        start
    }
}

/// What the keeper sees to by itself, whether or not there is a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeeperLimits {
    /// After this it is asked to stop, as if somebody had asked for it.
    pub lifetime_ms: u64,
    /// So much of each stream is kept; the rest is read and dropped.
    pub output_bytes: u64,
}

/// All that an attempt's processes may reach, with every path resolved. It holds no secret.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SandboxPlan {
    pub kind: SandboxKind,
    /// The agent's program.
    pub program: PathBuf,
    /// The user's, which there is in every sandbox, though with little in it.
    #[serde(default)]
    pub home: Option<PathBuf>,
    pub read: Vec<PathBuf>,
    pub write: Vec<PathBuf>,
    /// Not even if it lies below one of the above.
    pub hidden: Vec<PathBuf>,
    /// May be read, but not written, although it lies where may be written.
    pub frozen: Vec<PathBuf>,
    pub network: Reaches,
    /// Whether the proxy adds the provider's key to what is sent through it.
    #[serde(default)]
    pub gateway: bool,
    pub caps: Caps,
    /// Folders of ours that stand where others are.
    #[serde(default)]
    pub stead: Vec<(PathBuf, PathBuf)>,
    /// With `docker`.
    #[serde(default)]
    pub container: Option<Contained>,
    /// Where the socket of jobs is, if the agent has to speak to the fleet.
    #[serde(default)]
    pub talk: Option<PathBuf>,
}

impl SandboxPlan {
    /// Whether there is anybody whom a proxy leads to.
    pub fn has_proxy(&self) -> bool {
        let hosts = matches!(self.network, Reaches::Hosts(_));
        self.kind == SandboxKind::Bubblewrap && (hosts || self.gateway)
    }

    /// What its keeper sees to; a container's caps are the engine's.
    pub(super) fn own_caps(&self) -> Caps {
        if self.kind == SandboxKind::Docker { Caps::default() } else { self.caps }
    }
}

/// What an attempt's container is, beside what holds for every kind.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Contained {
    pub image: String,
    /// Where the engine listens.
    pub socket: PathBuf,
    pub user: Option<String>,
    pub tmpfs: Vec<String>,
    pub labels: BTreeMap<String, String>,
    /// What is found elsewhere than outside.
    pub volumes: Vec<Bound>,
    pub cpu_shares: Option<u64>,
    pub host_network: bool,
    /// Variables that say how things are outside.
    pub left_outside: Vec<String>,
    /// cowhand's own folder, by which its containers are known.
    pub state: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bound {
    pub from: PathBuf,
    pub to: PathBuf,
    pub written: bool,
}

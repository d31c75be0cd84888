//! `start.json`: the command that the keeper starts, and its sandbox plan.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cowhand_core::attempt::AttemptRules;
use cowhand_core::sandbox::{Caps, NetworkAccess, SandboxKind};
use serde::{Deserialize, Serialize};

use super::process::StopSignal;
use super::runtime::Reader;
use super::runtime::description::OWN_PROGRAM;
use super::runtime::input::InputFormat;

/// Command that the keeper runs. The keeper inherits the environment and passes it on. The environment is not stored,
/// except for its secrets, which redaction needs (`Attempt::write_secrets`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StartSpec {
    pub argv: Vec<String>,
    pub directory: PathBuf,
    pub stop_signal: StopSignal,
    /// Time from the stop signal to the kill.
    pub grace_ms: u64,
    /// Initial state of the reader. It is stored because the config may change later.
    #[serde(default)]
    pub reader: Option<Reader>,
    /// Form in which the keeper passes the prompt and messages to the agent. `None` if the standard input of the agent is
    /// the file with the prompt.
    #[serde(default)]
    pub input: Option<InputFormat>,
    /// Limits of the keeper; `None` for an attempt of a job, because the daemon enforces its limits.
    #[serde(default)]
    pub limits: Option<KeeperLimits>,
    /// Sandbox plan, if there is a sandbox or a cap.
    #[serde(default, rename = "enclosure")]
    pub sandbox: Option<SandboxPlan>,
    /// Path of the `cowhand` program, which a sandbox executes. `None` in a file of an earlier version. A keeper must
    /// not use its own path: after an upgrade, the file of its program may be deleted.
    #[serde(default)]
    pub program: Option<PathBuf>,
    /// Rules for the daemon that settles the attempt. They are stored because the config may change later. `None` for a
    /// hook, and for an attempt that an earlier version started.
    #[serde(default)]
    pub rules: Option<AttemptRules>,
}

impl StartSpec {
    /// Adds the path of the `cowhand` program, and replaces the placeholder in `argv` by it.
    #[must_use]
    pub fn with_program(&self, program: &Path) -> Self {
        let mut start = Self { program: Some(program.to_owned()), ..self.clone() };
        if let Some(first) = start.argv.first_mut().filter(|first| *first == OWN_PROGRAM) {
            *first = program.display().to_string();
        }
        start
    }
}

/// Limits that the keeper enforces, with or without a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeeperLimits {
    /// Time after which the process is stopped.
    pub lifetime_ms: u64,
    /// Maximum size of each stream; the rest is read and dropped.
    pub output_bytes: u64,
}

/// Everything that an attempt's processes may reach, with all paths resolved. It contains no secret.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SandboxPlan {
    pub kind: SandboxKind,
    /// Program of the agent.
    pub program: PathBuf,
    /// Home directory of the user. With bubblewrap and in a container, it exists and contains only paths that the agent
    /// may read or write.
    #[serde(default)]
    pub home: Option<PathBuf>,
    pub read: Vec<PathBuf>,
    pub write: Vec<PathBuf>,
    /// Paths that are hidden, even below a path in `read` or `write`.
    pub hidden: Vec<PathBuf>,
    /// Paths that may be read but not written, although they lie in a writable folder.
    #[serde(rename = "frozen")]
    pub read_only: Vec<PathBuf>,
    pub network: NetworkAccess,
    /// Set if the proxy adds the provider's key to requests.
    #[serde(default)]
    pub gateway: bool,
    pub caps: Caps,
    /// Pairs of a replacing folder and the folder that it replaces.
    #[serde(default, rename = "stead")]
    pub home_replacements: Vec<(PathBuf, PathBuf)>,
    /// Container, for `docker`.
    #[serde(default)]
    pub container: Option<ContainerSettings>,
    /// Folder of the job socket, if the agent talks to the fleet.
    #[serde(default, rename = "talk")]
    pub job_socket_folder: Option<PathBuf>,
}

impl SandboxPlan {
    /// Returns true if the sandbox has a proxy: for allowed hosts, or for the provider's key.
    pub fn has_proxy(&self) -> bool {
        let hosts = matches!(self.network, NetworkAccess::Hosts(_));
        self.kind == SandboxKind::Bubblewrap && (hosts || self.gateway)
    }

    /// Returns the caps that the keeper enforces; those of a container are enforced by the container engine.
    pub(super) fn own_caps(&self) -> Caps {
        if self.kind == SandboxKind::Docker { Caps::default() } else { self.caps }
    }
}

/// Settings of an attempt's container, in addition to those of all kinds of sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ContainerSettings {
    pub image: String,
    /// Socket of the container engine.
    pub socket: PathBuf,
    pub user: Option<String>,
    pub tmpfs: Vec<String>,
    pub labels: BTreeMap<String, String>,
    /// Further mounts, whose paths inside the container may differ from those outside.
    pub volumes: Vec<VolumeMount>,
    pub cpu_shares: Option<u64>,
    pub host_network: bool,
    /// Variables that describe the host and are not passed to the container.
    #[serde(rename = "left_outside")]
    pub excluded_variables: Vec<String>,
    /// State folder, by which containers are identified.
    pub state: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeMount {
    pub from: PathBuf,
    pub to: PathBuf,
    #[serde(rename = "written")]
    pub writable: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An upgraded daemon and keeper read the file of an attempt that was started before.
    #[test]
    fn start_json_keeps_the_names_of_its_fields() {
        let plan = SandboxPlan { container: Some(ContainerSettings::default()), ..SandboxPlan::default() };
        let written = serde_json::to_value(&plan).unwrap();
        for pointer in ["/stead", "/talk", "/container/left_outside"] {
            assert!(written.pointer(pointer).is_some(), "{pointer} in {written}");
        }
        assert_eq!(serde_json::from_value::<SandboxPlan>(written).unwrap(), plan);
    }
}

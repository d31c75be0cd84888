//! The keys of `docker`: containers for agents, as herdctl configures them.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::sandbox::{self, Container, NetworkWord, SandboxKind, SandboxRules, Volume};
use crate::size::Size;

/// herdctl's form of `sandbox: docker`. Keys that grant access outside the container may only be set in the fleet file,
/// so that an agent's own file cannot weaken its sandbox.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("x-strict" = true))]
pub struct Docker {
    pub enabled: Option<bool>,
    pub ephemeral: Option<bool>,
    #[schemars(regex(pattern = r"^\d+(\.\d+)?\s*[kmgtbKMGTB]?$"), extend("examples" = ["2g", "512m"]))]
    pub memory: Option<String>,
    #[schemars(range(min = 1))]
    pub cpu_shares: Option<u64>,
    #[schemars(range(min = 1))]
    pub cpu_period: Option<u64>,
    #[schemars(range(min = 1))]
    pub cpu_quota: Option<u64>,
    #[schemars(range(min = 1))]
    pub pids_limit: Option<u64>,
    #[schemars(range(min = 1))]
    pub max_containers: Option<u32>,
    pub workspace_mode: Option<WorkspaceMode>,
    /// Temporary file systems, `/path` or `/path:options`.
    pub tmpfs: Option<Vec<String>>,
    pub labels: Option<IndexMap<String, String>>,
    /// Image of the container; unset means herdctl's own, `herdctl/runtime:latest`, which has to be built.
    #[schemars(extend("x-fleet-only" = true, "x-old-names" = ["base_image"]))]
    pub image: Option<String>,
    #[schemars(extend("x-fleet-only" = true))]
    pub network: Option<DockerNetwork>,
    #[schemars(regex(pattern = r"^\d+(:\d+)?$"), extend("x-fleet-only" = true, "examples" = ["1000:1000"]))]
    pub user: Option<String>,
    /// Mounts, `host:container`, optionally with `:ro` or `:rw`.
    #[schemars(extend("x-fleet-only" = true))]
    pub volumes: Option<Vec<String>>,
    #[schemars(extend("x-fleet-only" = true, "x-secret" = true))]
    pub env: Option<IndexMap<String, String>>,
    /// Published ports, `host:container` or `container`; an agent with them is not started.
    #[schemars(extend("x-fleet-only" = true))]
    pub ports: Option<Vec<String>>,
    /// Settings that herdctl passes to the container engine unchanged; an agent with them is not started.
    #[schemars(extend("x-fleet-only" = true))]
    pub host_config: Option<IndexMap<String, Value>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkspaceMode {
    Rw,
    Ro,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Network")]
pub enum DockerNetwork {
    Bridge,
    None,
    Host,
}

/// Default image of herdctl. It is in no registry: its users build it.
pub const DEFAULT_IMAGE: &str = "herdctl/runtime:latest";

/// Default CPU period of the engine, in microseconds.
const PERIOD: u64 = 100_000;

impl Docker {
    /// Returns the sandbox rules; none if it is not enabled.
    pub fn rules(&self) -> Option<SandboxRules> {
        // As in herdctl, a container has a network unless configured otherwise.
        let network = match self.network.unwrap_or(DockerNetwork::Bridge) {
            DockerNetwork::None => NetworkWord::Off,
            DockerNetwork::Bridge | DockerNetwork::Host => NetworkWord::On,
        };
        (self.enabled == Some(true)).then(|| SandboxRules {
            kind: SandboxKind::Docker,
            image: self.image.clone(),
            network: Some(sandbox::Network::Word(network)),
            memory: self.memory.as_deref().and_then(bytes).and_then(Size::of_bytes),
            pids: self.pids_limit.map(|most| u32::try_from(most).unwrap_or(u32::MAX)),
            cpu: self.processors(),
            ..SandboxRules::default()
        })
    }

    /// Adds the settings that `sandbox` does not have.
    pub fn container(&self, own: Container) -> Container {
        let volumes = self.volumes.iter().flatten().map(|text| volume(text));
        let volumes: Option<Vec<Volume>> = volumes.collect();
        let refused = self.refusal().or_else(|| volumes.is_none().then_some(NO_VOLUME));
        Container {
            user: self.user.clone(),
            read_only: self.workspace_mode == Some(WorkspaceMode::Ro),
            tmpfs: self.tmpfs.clone().unwrap_or_default(),
            labels: self.labels.iter().flatten().map(|(name, value)| (name.clone(), value.clone())).collect(),
            volumes: volumes.unwrap_or_default(),
            cpu_shares: self.cpu_shares,
            host_network: self.network == Some(DockerNetwork::Host),
            refused,
            image: own.image.or_else(|| Some(DEFAULT_IMAGE.to_owned())),
            ..own
        }
    }

    fn refusal(&self) -> Option<&'static str> {
        let is_set = |list: Option<usize>| list.is_some_and(|length| length > 0);
        if is_set(self.host_config.as_ref().map(IndexMap::len)) {
            return Some(
                "`docker.host_config` goes past every rule of the sandbox, so it is not handed on; say what is needed by the other keys",
            );
        }
        if is_set(self.ports.as_ref().map(Vec::len)) {
            return Some("`docker.ports` would let others in, and nobody is: take it away");
        }
        if self.ephemeral == Some(false) {
            return Some(
                "`docker.ephemeral: false` keeps a container from job to job; here each job has its own, which goes with it",
            );
        }
        None
    }

    #[expect(clippy::cast_precision_loss, reason = "microseconds of a tenth of a second")]
    fn processors(&self) -> Option<f64> {
        Some(self.cpu_quota? as f64 / self.cpu_period.unwrap_or(PERIOD) as f64)
    }
}

const NO_VOLUME: &str = "`docker.volumes` has to be `/host/path:/container/path`, with `:ro` or `:rw`; volumes with a name are not used";

/// Parses a size such as `512m`. Engines count in powers of 1024.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the schema lets no sign through, and what is too large is the largest"
)]
fn bytes(text: &str) -> Option<u64> {
    let (number, power) = match text.trim_end().to_ascii_lowercase().strip_suffix(['b', 'k', 'm', 'g', 't']) {
        Some(number) => (number.to_owned(), "bkmgt".find(text.trim_end().to_ascii_lowercase().pop()?)?),
        None => (text.to_owned(), 0),
    };
    let number: f64 = number.trim().parse().ok()?;
    Some((number * 1024_f64.powi(i32::try_from(power).ok()?)) as u64)
}

/// Parses a volume; none if it is not a path on this machine.
fn volume(text: &str) -> Option<Volume> {
    let (paths, written) = match text.rsplit_once(':') {
        Some((paths, "ro")) => (paths, false),
        Some((paths, "rw")) => (paths, true),
        _ => (text, true),
    };
    let (from, to) = paths.split_once(':')?;
    let local = from.starts_with(['/', '.', '~']) && to.starts_with('/') && !to.contains(':');
    local.then(|| Volume { from: from.to_owned(), to: to.to_owned(), written })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn docker(text: &str) -> Docker {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn what_it_asks_for() {
        assert_eq!(docker(r#"{"image":"a"}"#).rules(), None);
        let all = r#"{"enabled":true,"image":"a","memory":"1.5g","pids_limit":64,"cpu_quota":25000,"cpu_period":50000,
            "network":"none"}"#;
        let asked = docker(all).rules().unwrap().asked();
        assert_eq!(
            (asked.caps.memory, asked.caps.pids, asked.caps.cpu),
            (Some(3 << 29), Some(64), Some(0.5))
        );
        assert_eq!(asked.network, sandbox::Reaches::Nobody);
        assert_eq!(asked.container.image.as_deref(), Some("a"));
        let plain = docker(r#"{"enabled":true,"cpu_quota":200000}"#).rules().unwrap().asked();
        assert_eq!((plain.network, plain.caps.cpu), (sandbox::Reaches::Everybody, Some(2.0)));
        assert_eq!(["7", "7 b", "2k", "2M", "1t"].map(bytes), [7, 7, 2048, 2 << 20, 1 << 40].map(Some));
    }

    #[test]
    fn what_has_no_other_word() {
        let all = r#"{"user":"5:6","workspace_mode":"ro","tmpfs":["/x:size=1m"],"labels":{"a":"b"},"network":"host",
            "volumes":["/a:/b:ro","~/c:/d","./e:/f:rw"],"cpu_shares":9,"max_containers":1,"ephemeral":true}"#;
        let own = Container { image: Some("i".into()), ..Container::default() };
        let container = docker(all).container(own);
        assert_eq!((container.image.as_deref(), container.user.as_deref()), (Some("i"), Some("5:6")));
        assert!(container.read_only && container.host_network && container.refused.is_none());
        let volumes: Vec<_> =
            container.volumes.iter().map(|own| (own.from.as_str(), own.to.as_str(), own.written)).collect();
        assert_eq!(volumes, [("/a", "/b", false), ("~/c", "/d", true), ("./e", "/f", true)]);
        assert_eq!((container.cpu_shares, container.labels["a"].as_str()), (Some(9), "b"));
    }

    #[test]
    fn what_cannot_be_had() {
        for (text, word) in [
            (r#"{"ports":["80:80"]}"#, "`docker.ports`"),
            (r#"{"host_config":{"Privileged":true}}"#, "`docker.host_config`"),
            (r#"{"ephemeral":false}"#, "`docker.ephemeral: false`"),
            (r#"{"volumes":["cache:/x"]}"#, "volumes with a name"),
            (r#"{"volumes":["/a"]}"#, "volumes with a name"),
            (r#"{"volumes":["/a:x"]}"#, "volumes with a name"),
        ] {
            let refused = docker(text).container(Container::default()).refused.unwrap_or_default();
            assert!(refused.contains(word), "{text}: {refused}");
        }
        let unnamed = docker(r#"{"enabled":true}"#).container(Container::default());
        assert_eq!(unnamed.image.as_deref(), Some(DEFAULT_IMAGE));
        assert_eq!(docker(r#"{"ports":[],"host_config":{}}"#).container(Container::default()).refused, None);
    }
}

//! herdctl's `docker`, translated to sandbox rules and further settings of a container.

use indexmap::IndexMap;

use crate::sandbox::{
    Container, ContainerSandbox, DEFAULT_IMAGE, Network, NetworkWord, SandboxKind, SandboxRules, Volume,
};
use crate::shape::{Docker, DockerNetwork, WorkspaceMode};
use crate::size::Size;

/// Default CPU period of a container engine, in microseconds.
const DEFAULT_CPU_PERIOD: u64 = 100_000;

/// Returns the requested container; none if it is not enabled.
pub(in super::super) fn sandbox(docker: &Docker) -> Option<ContainerSandbox> {
    let is_enabled = docker.enabled == Some(true);
    is_enabled.then(|| ContainerSandbox { rules: rules(docker), container: container(docker) })
}

fn rules(docker: &Docker) -> SandboxRules {
    // As in herdctl, a container has a network unless configured otherwise.
    let network = match docker.network.unwrap_or(DockerNetwork::Bridge) {
        DockerNetwork::None => NetworkWord::Off,
        DockerNetwork::Bridge | DockerNetwork::Host => NetworkWord::On,
    };
    SandboxRules {
        kind: SandboxKind::Docker,
        image: docker.image.clone(),
        network: Some(Network::Word(network)),
        memory: docker.memory.as_deref().and_then(bytes).and_then(Size::of_bytes),
        pids: docker.pids_limit.map(|most| u32::try_from(most).unwrap_or(u32::MAX)),
        cpu: processors(docker),
        ..SandboxRules::default()
    }
}

/// Returns the settings of the container. `sandbox` has no keys for most of them.
fn container(docker: &Docker) -> Container {
    let volumes = docker.volumes.iter().flatten().map(|text| volume(text));
    let volumes: Option<Vec<Volume>> = volumes.collect();
    let refused = refusal(docker).or_else(|| volumes.is_none().then_some(INVALID_VOLUME));
    Container {
        image: Some(DEFAULT_IMAGE.to_owned()),
        socket: None,
        user: docker.user.clone(),
        read_only: docker.workspace_mode == Some(WorkspaceMode::Ro),
        tmpfs: docker.tmpfs.clone().unwrap_or_default(),
        labels: docker.labels.iter().flatten().map(|(name, value)| (name.clone(), value.clone())).collect(),
        volumes: volumes.unwrap_or_default(),
        cpu_shares: docker.cpu_shares,
        host_network: docker.network == Some(DockerNetwork::Host),
        refused,
    }
}

fn refusal(docker: &Docker) -> Option<&'static str> {
    let is_set = |list: Option<usize>| list.is_some_and(|length| length > 0);
    if is_set(docker.host_config.as_ref().map(IndexMap::len)) {
        return Some(
            "`docker.host_config` bypasses all rules of the sandbox, so cowhand does not support it; use the other keys",
        );
    }
    if is_set(docker.ports.as_ref().map(Vec::len)) {
        return Some("cowhand does not publish ports of containers; remove `docker.ports`");
    }
    if docker.ephemeral == Some(false) {
        return Some(
            "cowhand does not support `docker.ephemeral: false`: each attempt has its own container, which is removed when the attempt ends",
        );
    }
    None
}

#[expect(clippy::cast_precision_loss, reason = "exact below 2^53, far above any quota or period")]
fn processors(docker: &Docker) -> Option<f64> {
    Some(docker.cpu_quota? as f64 / docker.cpu_period.unwrap_or(DEFAULT_CPU_PERIOD) as f64)
}

const INVALID_VOLUME: &str = "a volume in `docker.volumes` has to be `HOST_PATH:/CONTAINER_PATH`, optionally with `:ro` or `:rw` at its end, and HOST_PATH has to begin with `/`, `.` or `~`; cowhand does not support volumes with a name";

/// Parses a size such as `512m`. Container engines count in powers of 1024.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the schema allows no sign, and a number that is too large becomes the largest one"
)]
fn bytes(text: &str) -> Option<u64> {
    let (number, power) = match text.trim_end().to_ascii_lowercase().strip_suffix(['b', 'k', 'm', 'g', 't']) {
        Some(number) => (number.to_owned(), "bkmgt".find(text.trim_end().to_ascii_lowercase().pop()?)?),
        None => (text.to_owned(), 0),
    };
    let number: f64 = number.trim().parse().ok()?;
    Some((number * 1024_f64.powi(i32::try_from(power).ok()?)) as u64)
}

/// Parses a volume. Returns none unless it has a path on this machine and an absolute path in the container.
fn volume(text: &str) -> Option<Volume> {
    let (paths, writable) = match text.rsplit_once(':') {
        Some((paths, "ro")) => (paths, false),
        Some((paths, "rw")) => (paths, true),
        _ => (text, true),
    };
    let (from, to) = paths.split_once(':')?;
    let local = from.starts_with(['/', '.', '~']) && to.starts_with('/') && !to.contains(':');
    local.then(|| Volume { from: from.to_owned(), to: to.to_owned(), writable })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::NetworkAccess;

    fn docker(text: &str) -> Docker {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn docker_settings_become_sandbox_rules() {
        assert_eq!(sandbox(&docker(r#"{"image":"a"}"#)), None);
        let all = r#"{"enabled":true,"image":"a","memory":"1.5g","pids_limit":64,"cpu_quota":25000,"cpu_period":50000,
            "network":"none"}"#;
        let asked = sandbox(&docker(all)).unwrap().rules.request();
        assert_eq!(
            (asked.caps.memory, asked.caps.pids, asked.caps.cpu),
            (Some(3 << 29), Some(64), Some(0.5))
        );
        assert_eq!(asked.network, NetworkAccess::None);
        assert_eq!(asked.container.image.as_deref(), Some("a"));
        let plain = sandbox(&docker(r#"{"enabled":true,"cpu_quota":200000}"#)).unwrap().rules.request();
        assert_eq!((plain.network, plain.caps.cpu), (NetworkAccess::All, Some(2.0)));
        assert_eq!(["7", "7 b", "2k", "2M", "1t"].map(bytes), [7, 7, 2048, 2 << 20, 1 << 40].map(Some));
    }

    #[test]
    fn docker_settings_become_container_settings() {
        let all = r#"{"user":"5:6","workspace_mode":"ro","tmpfs":["/x:size=1m"],"labels":{"a":"b"},"network":"host",
            "volumes":["/a:/b:ro","~/c:/d","./e:/f:rw"],"cpu_shares":9,"max_containers":1,"ephemeral":true}"#;
        let own = Container { image: Some("i".into()), ..Container::default() };
        let container = container(&docker(all)).over(own);
        assert_eq!((container.image.as_deref(), container.user.as_deref()), (Some("i"), Some("5:6")));
        assert!(container.read_only && container.host_network && container.refused.is_none());
        let volumes: Vec<_> =
            container.volumes.iter().map(|own| (own.from.as_str(), own.to.as_str(), own.writable)).collect();
        assert_eq!(volumes, [("/a", "/b", false), ("~/c", "/d", true), ("./e", "/f", true)]);
        assert_eq!((container.cpu_shares, container.labels["a"].as_str()), (Some(9), "b"));
    }

    #[test]
    fn unsupported_docker_settings_are_refused() {
        for (text, word) in [
            (r#"{"ports":["80:80"]}"#, "`docker.ports`"),
            (r#"{"host_config":{"Privileged":true}}"#, "`docker.host_config`"),
            (r#"{"ephemeral":false}"#, "`docker.ephemeral: false`"),
            (r#"{"volumes":["cache:/x"]}"#, "volumes with a name"),
            (r#"{"volumes":["/a"]}"#, "volumes with a name"),
            (r#"{"volumes":["/a:x"]}"#, "volumes with a name"),
        ] {
            let refused = container(&docker(text)).refused.unwrap_or_default();
            assert!(refused.contains(word), "{text}: {refused}");
        }
        let unnamed = container(&docker(r#"{"enabled":true}"#)).over(Container::default());
        assert_eq!(unnamed.image.as_deref(), Some(DEFAULT_IMAGE));
        assert_eq!(container(&docker(r#"{"ports":[],"host_config":{}}"#)).refused, None);
    }
}

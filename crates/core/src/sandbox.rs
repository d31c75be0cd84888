//! Sandboxes: which files an agent's processes may access, which hosts they may reach, and how much of the machine they
//! may use.
//!
//! This module contains only the configured rules. The code that starts the agent decides whether this machine can
//! enforce them, and how.

mod container;
mod host;

use std::path::{Component, Path};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::size::Size;
use crate::word::written_as;
pub use container::{Container, ContainerSandbox, DEFAULT_IMAGE, Volume};
pub use host::{Host, HostError};

/// A kind, or a kind with its rules.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(extend("x-short-for" = "kind"))]
pub enum Sandbox {
    Kind(SandboxKind),
    Rules(SandboxRules),
}

/// Kind of sandbox: none, Landlock of the kernel, namespaces created by the program `bwrap`, or a container of an
/// engine with Docker's API. Each is stricter than those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SandboxKind {
    #[default]
    None,
    Landlock,
    Bubblewrap,
    Docker,
}

/// Location of the model provider's key: in the agent's environment, or only in the proxy that adds it to the agent's
/// requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Credentials {
    #[default]
    Inside,
    Outside,
}

written_as! {
    SandboxKind { None = "none", Landlock = "landlock", Bubblewrap = "bubblewrap", Docker = "docker" }
    Credentials { Inside = "inside", Outside = "outside" }
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SandboxRules {
    pub kind: SandboxKind,
    /// Paths that the agent may write, in addition to its working directory and its program's own folders, for example
    /// `~/.claude`. `~/` is the home directory; other relative paths begin at the agent's directory.
    #[serde(default)]
    pub write: Option<Vec<String>>,
    /// Paths that the agent may read, in addition to system folders, its program and writable paths.
    #[serde(default)]
    pub read: Option<Vec<String>>,
    /// Hosts that the agent may reach; unset means `off`, or with `kind: none` no restriction.
    #[serde(default)]
    pub network: Option<Network>,
    /// `outside` keeps the provider's key from the agent; unset means `inside`.
    #[serde(default)]
    pub credentials: Option<Credentials>,
    /// Maximum memory of all its processes together.
    #[serde(default)]
    pub memory: Option<Size>,
    /// Maximum number of processes and threads at a time, including one to three of the sandbox itself.
    #[serde(default)]
    #[schemars(range(min = 8))]
    pub pids: Option<u32>,
    /// Maximum CPU time in processors; 0.5 is half of one.
    #[serde(default)]
    #[schemars(range(min = 0.05, max = 1024))]
    pub cpu: Option<f64>,
    /// Image of the container; required for `docker`, not used by other kinds. It has to be on the machine: cowhand
    /// does not pull images.
    #[serde(default)]
    #[schemars(regex(pattern = r"^[^\s-]\S*$"), extend("examples" = ["node:22"]))]
    pub image: Option<String>,
    /// Path of the socket of the `docker` engine. Unset means the value of `DOCKER_HOST`, or the first of the usual
    /// sockets on which an engine listens.
    #[serde(default)]
    #[schemars(length(min = 1), extend("examples" = ["/run/podman/podman.sock"]))]
    pub socket: Option<String>,
}

/// `on`, `off`, or the ports or hosts that may be reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Network {
    Word(NetworkWord),
    Reach(Reach),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NetworkWord {
    Off,
    On,
}

/// Either ports or hosts: Landlock supports ports, and the proxy of `bubblewrap` supports hosts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reach {
    /// TCP ports on any host. 53 allows DNS lookups, which also opens UDP.
    #[serde(default)]
    #[schemars(inner(range(min = 1)))]
    pub ports: Option<Vec<u16>>,
    /// Hosts such as `api.example.com` or `*.example.com`, with an optional port; unset means 443.
    #[serde(default)]
    pub hosts: Option<Vec<Host>>,
}

/// The requested sandbox with all defaults applied.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RequestedSandbox {
    pub kind: SandboxKind,
    pub write: Vec<String>,
    pub read: Vec<String>,
    pub network: NetworkAccess,
    pub credentials: Credentials,
    pub caps: Caps,
    pub container: Container,
}

/// Hosts that an agent may reach.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkAccess {
    #[default]
    #[serde(rename = "nobody")]
    None,
    Ports(Vec<u16>),
    Hosts(Vec<Host>),
    #[serde(rename = "everybody")]
    All,
}

/// Limits on memory in bytes, on processes and threads, and on CPU time in processors.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Caps {
    pub memory: Option<u64>,
    pub pids: Option<u32>,
    pub cpu: Option<f64>,
}

impl Caps {
    pub const fn is_none(&self) -> bool {
        self.memory.is_none() && self.pids.is_none() && self.cpu.is_none()
    }
}

impl SandboxKind {
    /// Default kind of the strict sandbox, for text of strangers.
    pub(crate) const STRICT: Self = Self::Bubblewrap;

    /// Returns true if another program starts the agent and reports a signal that ended the agent as an exit code.
    pub const fn reports_signal_as_code(self) -> bool {
        matches!(self, Self::Bubblewrap | Self::Docker)
    }
}

impl Sandbox {
    pub fn rules(&self) -> SandboxRules {
        match self {
            Self::Kind(kind) => SandboxRules { kind: *kind, ..SandboxRules::default() },
            Self::Rules(rules) => rules.clone(),
        }
    }
}

impl SandboxRules {
    /// Combines two sets of rules so that both hold. A key that is unset in one set is taken from the other set. Of
    /// rules with `kind: none`, only the limits on memory, processes and CPU time count.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self.kind, other.kind) {
            (_, SandboxKind::None) => self.capped(&other),
            (SandboxKind::None, _) => other.capped(&self),
            _ => Self {
                kind: self.kind.max(other.kind),
                write: both(self.write.clone(), other.write.clone(), in_both),
                read: both(self.read.clone(), other.read.clone(), in_both),
                network: both(self.network.clone(), other.network.clone(), Network::and),
                credentials: self.credentials.max(other.credentials),
                // An image grants no access, so the image of `other` is used, which is closer to the job.
                image: other.image.clone().or(self.image),
                socket: other.socket.clone().or(self.socket),
                ..self
            }
            .capped(&other),
        }
    }

    /// Closes the unset keys `write`, `read` and `network`. Rules with `kind: none` stay unchanged.
    #[must_use]
    pub(crate) fn closed(self) -> Self {
        if self.kind == SandboxKind::None {
            return self;
        }
        Self {
            write: self.write.or_else(|| Some(Vec::new())),
            read: self.read.or_else(|| Some(Vec::new())),
            network: self.network.or(Some(Network::Word(NetworkWord::Off))),
            ..self
        }
    }

    /// Compares these rules of a schedule with the rules of its agent, and returns the keys that grant more than the
    /// agent's rules allow.
    pub(crate) fn keys_beyond(&self, agents: &Self) -> Vec<&'static str> {
        if self.kind == SandboxKind::None || agents.kind == SandboxKind::None {
            return Vec::new();
        }
        let held = agents.clone().closed().and(self.clone());
        let loses = |own: &Option<Vec<String>>, held: &Option<Vec<String>>| {
            let held = held.as_deref().unwrap_or_default();
            own.iter().flatten().any(|path| !held.contains(path))
        };
        let reaches = |network: &Option<Network>| network.clone().map(Network::reaches).unwrap_or_default();
        [
            ("write", loses(&self.write, &held.write)),
            ("read", loses(&self.read, &held.read)),
            ("network", !reaches(&self.network).lies_in(&reaches(&held.network))),
        ]
        .into_iter()
        .filter_map(|(key, is_lost)| is_lost.then_some(key))
        .collect()
    }

    /// Takes the smaller of each limit on memory, processes and CPU time.
    fn capped(self, other: &Self) -> Self {
        Self {
            memory: both(
                self.memory,
                other.memory,
                |own, more| if own.bytes() <= more.bytes() { own } else { more },
            ),
            pids: both(self.pids, other.pids, u32::min),
            cpu: both(self.cpu, other.cpu, f64::min),
            ..self
        }
    }

    /// Returns the keys that `kind: none` cannot enforce. Keys that state that nothing is restricted are accepted.
    pub(crate) fn unenforceable_keys(&self) -> Vec<&'static str> {
        if self.kind != SandboxKind::None {
            return Vec::new();
        }
        let closes = |network: &Network| *network != Network::Word(NetworkWord::On);
        [
            ("network", self.network.as_ref().is_some_and(closes)),
            ("write", self.write.is_some()),
            ("read", self.read.is_some()),
            ("credentials", self.credentials == Some(Credentials::Outside)),
        ]
        .into_iter()
        .filter_map(|(key, is_written)| is_written.then_some(key))
        .collect()
    }

    pub fn request(self) -> RequestedSandbox {
        let caps = Caps { memory: self.memory.map(Size::bytes), pids: self.pids, cpu: self.cpu };
        if self.kind == SandboxKind::None {
            return RequestedSandbox { network: NetworkAccess::All, caps, ..RequestedSandbox::default() };
        }
        RequestedSandbox {
            kind: self.kind,
            write: self.write.unwrap_or_default(),
            read: self.read.unwrap_or_default(),
            network: self.network.map(Network::reaches).unwrap_or_default(),
            credentials: self.credentials.unwrap_or_default(),
            caps,
            container: Container { image: self.image, socket: self.socket, ..Container::default() },
        }
    }
}

fn both<T>(own: Option<T>, more: Option<T>, and: impl FnOnce(T, T) -> T) -> Option<T> {
    match (own, more) {
        (Some(own), Some(more)) => Some(and(own, more)),
        (own, more) => own.or(more),
    }
}

/// Returns the paths that both lists allow.
#[expect(clippy::needless_pass_by_value, reason = "`both` calls it with owned lists")]
fn in_both(own: Vec<String>, more: Vec<String>) -> Vec<String> {
    // A path with `..` may lead anywhere.
    let lies_in = |path: &String, above: &String| {
        let below = Path::new(path).strip_prefix(above);
        below.is_ok_and(|below| !below.components().any(|part| part == Component::ParentDir))
    };
    let within = |path: &String, list: &[String]| list.iter().any(|above| lies_in(path, above));
    let of_own = own.iter().filter(|path| within(path, &more));
    let of_more = more.iter().filter(|path| within(path, &own) && !own.contains(path));
    of_own.chain(of_more).cloned().collect()
}

impl Network {
    fn and(self, more: Self) -> Self {
        use NetworkAccess::{All, Hosts, Ports};
        match (self.reaches(), more.reaches()) {
            (NetworkAccess::None, _) | (_, NetworkAccess::None) => Self::Word(NetworkWord::Off),
            (All, some) | (some, All) => Self::of(some),
            (Ports(own), Ports(more)) => {
                Self::of(Ports(own.into_iter().filter(|port| more.contains(port)).collect()))
            }
            (Hosts(hosts), Ports(ports)) | (Ports(ports), Hosts(hosts)) => {
                Self::of(Hosts(hosts.into_iter().filter(|host| ports.contains(&host.port())).collect()))
            }
            (Hosts(own), Hosts(more)) => {
                let of_own = own.iter().filter(|host| more.iter().any(|above| above.covers(host)));
                let of_more = more
                    .iter()
                    .filter(|host| own.iter().any(|above| above.covers(host)) && !own.contains(host));
                Self::of(Hosts(of_own.chain(of_more).cloned().collect()))
            }
        }
    }

    fn of(reaches: NetworkAccess) -> Self {
        match reaches {
            NetworkAccess::None => Self::Word(NetworkWord::Off),
            NetworkAccess::All => Self::Word(NetworkWord::On),
            NetworkAccess::Ports(ports) => Self::Reach(Reach { ports: Some(ports), hosts: None }),
            NetworkAccess::Hosts(hosts) => Self::Reach(Reach { ports: None, hosts: Some(hosts) }),
        }
    }

    fn reaches(self) -> NetworkAccess {
        match self {
            Self::Word(NetworkWord::On) => NetworkAccess::All,
            // Setting both is an error that has been reported.
            Self::Reach(Reach { hosts: Some(hosts), .. }) => NetworkAccess::Hosts(hosts),
            Self::Reach(Reach { ports: Some(ports), .. }) => NetworkAccess::Ports(ports),
            Self::Word(NetworkWord::Off) | Self::Reach(_) => NetworkAccess::None,
        }
    }
}

impl NetworkAccess {
    fn lies_in(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::None, _) | (_, Self::All) => true,
            (Self::Ports(own), Self::Ports(other)) => own.iter().all(|port| other.contains(port)),
            (Self::Hosts(own), Self::Hosts(other)) => own.iter().all(|host| other.contains(host)),
            _ => false,
        }
    }
}

impl RequestedSandbox {
    /// Returns a sentence about a combination that no machine can enforce, if there is one.
    pub fn contradiction(&self) -> Option<&'static str> {
        self.contradictions().next()
    }

    /// Returns a sentence about each combination that no machine can enforce.
    pub(crate) fn contradictions(&self) -> impl Iterator<Item = &'static str> {
        let container = if self.kind == SandboxKind::Docker { self.container.contradiction() } else { None };
        [self.network_contradiction(), self.credentials_contradiction(), container].into_iter().flatten()
    }

    fn network_contradiction(&self) -> Option<&'static str> {
        match (self.kind, &self.network) {
            (SandboxKind::Landlock, NetworkAccess::Hosts(_)) => Some(
                "`network: {hosts: …}` needs `kind: bubblewrap`: Landlock can restrict ports (`network: {ports: …}`) but not hosts",
            ),
            (SandboxKind::Bubblewrap, NetworkAccess::Ports(_)) => Some(
                "`network: {ports: …}` needs `kind: landlock`; with bubblewrap, list the hosts: `network: {hosts: [api.example.com:443]}`",
            ),
            (SandboxKind::Docker, NetworkAccess::Hosts(_)) => Some(
                "`network: {hosts: …}` needs the proxy of `kind: bubblewrap`; with docker, `network` is `on` or `off`",
            ),
            (SandboxKind::Docker, NetworkAccess::Ports(_)) => {
                Some("`network: {ports: …}` needs `kind: landlock`; with docker, `network` is `on` or `off`")
            }
            _ => None,
        }
    }

    pub(crate) fn credentials_contradiction(&self) -> Option<&'static str> {
        match (self.kind, &self.network, self.credentials) {
            (SandboxKind::Landlock | SandboxKind::Docker | SandboxKind::None, _, Credentials::Outside) => {
                Some("`credentials: outside` needs `kind: bubblewrap`, whose proxy adds the provider's key")
            }
            (_, NetworkAccess::All, Credentials::Outside) => Some(
                "`credentials: outside` needs a network that is off or has `hosts`; with `network: on`, requests bypass the proxy",
            ),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;

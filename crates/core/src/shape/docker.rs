//! The keys of `docker`: containers for agents, as herdctl configures them.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

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
    /// Published ports, `host:container` or `container`. An agent with published ports is not started.
    #[schemars(extend("x-fleet-only" = true))]
    pub ports: Option<Vec<String>>,
    /// Settings that herdctl passes to the container engine unchanged. An agent with such settings is not started.
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

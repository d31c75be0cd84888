//! The keys of `mcp_servers`: MCP servers that an agent may use.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::mcp::McpTransport;

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "McpServer")]
pub struct McpServerConfig {
    /// Transport; unset means http with a `url` and stdio with a `command`.
    #[serde(rename = "type")]
    pub transport: Option<McpTransport>,
    pub command: Option<String>,
    pub args: Option<Vec<String>>,
    #[schemars(extend("x-secret" = true))]
    pub env: Option<IndexMap<String, String>>,
    #[schemars(extend("x-address" = true))]
    pub url: Option<String>,
    #[schemars(extend("x-secret" = true))]
    pub headers: Option<IndexMap<String, String>>,
    /// Time limit of a tool call in milliseconds; unset means that the agent's program decides.
    #[schemars(range(min = 1))]
    pub timeout: Option<u64>,
    #[serde(rename = "alwaysLoad")]
    pub always_load: Option<bool>,
}

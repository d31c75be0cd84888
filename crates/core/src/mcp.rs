//! MCP servers that an agent may use.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::word::written_as;

/// An MCP server. It is serialized in the form that Claude Code reads.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct McpServer {
    #[serde(rename = "type")]
    pub transport: McpTransport,
    /// Program, for stdio.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Arguments of the program.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Environment variables of the program.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub env: IndexMap<String, String>,
    /// Address, for http and sse.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Headers of each request.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub headers: IndexMap<String, String>,
    /// Time limit in milliseconds; none means the default of the agent's program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u64>,
    /// True if its tools are always loaded; none means that the agent's program decides.
    #[serde(rename = "alwaysLoad", skip_serializing_if = "Option::is_none")]
    pub always_load: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum McpTransport {
    #[default]
    Stdio,
    Sse,
    Http,
}

/// The tools that a job gets from the MCP server of the fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobToolSet {
    /// Tools for the fleet.
    Fleet,
    /// Tools for the chat that the job answers.
    Chat,
    All,
}

written_as! {
    JobToolSet {
        Fleet = "fleet",
        Chat = "chat",
        All = "all",
    }
}

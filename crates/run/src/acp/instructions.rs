//! The instructions of the ACP client, which the daemon writes into a private file of the attempt.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::permission::PermissionRules;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Instructions {
    /// Program of the agent and its arguments.
    pub command: Vec<String>,
    pub session: SessionRequest,
    pub model: Option<String>,
    pub rules: PermissionRules,
    /// MCP servers in the form of the protocol. They may contain secrets.
    pub mcp_servers: Vec<Value>,
    /// Timeout of every answer except the answer to the prompt.
    #[serde(rename = "patience_ms")]
    pub timeout_ms: u64,
    /// True if the input consists of JSON lines: the prompt and then messages. Otherwise it is the prompt.
    #[serde(default)]
    pub has_messages: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionRequest {
    Fresh,
    Resume(String),
    Fork(String),
}

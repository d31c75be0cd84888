//! What the client is to do, as the daemon writes it into a private file of the attempt.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::permission::PermissionRules;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Instructions {
    /// The agent's program and its arguments.
    pub command: Vec<String>,
    pub session: SessionRequest,
    pub model: Option<String>,
    pub rules: PermissionRules,
    /// In the protocol's own form; they may hold secrets.
    pub mcp_servers: Vec<Value>,
    /// For every answer but the one to the prompt.
    pub patience_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionRequest {
    Fresh,
    Resume(String),
    Fork(String),
}

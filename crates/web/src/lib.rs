//! The API, webhooks, metrics and the MCP server. The pages of the dashboard are in `cowhand-dashboard`.

pub mod api;
pub mod mcp;
pub mod server;

//! The API, webhooks, the dashboard, metrics and the MCP server.

pub mod api;
pub mod mcp;
pub mod server;

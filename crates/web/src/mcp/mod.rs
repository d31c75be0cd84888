//! The fleet as an MCP server on standard input and output. A server that the agent of a job starts has the rights of
//! the job (`job`). A server that the assistant of a person starts has the rights of the person (`person`).
//!
//! The server has no state: every tool sends a request to the daemon. The tools of a job wait for a daemon that
//! restarts.

mod job;
mod person;
mod stdio;
mod tool;

use std::sync::Arc;

use anyhow::Context as _;
use cowhand_core::mcp::JobToolSet;
use cowhand_core::server::Scope;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt};

use cowhand_run::acp::ToolUse;
pub use job::JobTools;
pub use person::PersonTools;
use tool::Tool;

/// Result of a tool; the error is a message for the MCP client.
type ToolResult = Result<String, String>;

/// Asks the fleet whether an agent may use a tool. The environment of this process names the job of the agent.
pub async fn may_use(ToolUse { id, tool, input }: ToolUse) -> Result<(), String> {
    JobTools::from_environment()?.may_use(&id, tool, input).await
}

/// Serves the agent of a job until it disconnects.
pub async fn serve_job(connection: JobTools, tools: JobToolSet) -> anyhow::Result<()> {
    serve(job::tools(tools), connection).await
}

/// Serves an assistant until it disconnects.
pub async fn serve_person(connection: PersonTools, scope: Scope) -> anyhow::Result<()> {
    serve(person::tools(scope), connection).await
}

async fn serve<V: Send + Sync + 'static>(tools: Vec<Tool<V>>, connection: V) -> anyhow::Result<()> {
    let server = McpServer { tools, connection: Arc::new(connection) };
    let (stream, writer) = stdio::connect(tokio::io::stdin(), tokio::io::stdout());
    let running = server.serve(stream).await.context("no MCP client is connected");
    let ended = match running {
        Ok(running) => running.waiting().await.map(drop).context("the MCP server has ended"),
        Err(error) => Err(error),
    };
    // The last answers are written before the process ends.
    writer.await.context("the output of the MCP server")?;
    ended
}

#[derive(Debug)]
struct McpServer<V> {
    tools: Vec<Tool<V>>,
    connection: Arc<V>,
}

impl<V: Send + Sync + 'static> ServerHandler for McpServer<V> {
    fn get_info(&self) -> ServerConfig {
        let mut config = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
        config.server_info = Implementation::new("cowhand", env!("CARGO_PKG_VERSION"));
        config
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools.iter().map(Tool::described).collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(tool) = self.tools.iter().find(|tool| tool.name == request.name) else {
            return Err(ErrorData::invalid_params(format!("there is no tool {:?}", request.name), None));
        };
        let input = serde_json::Value::Object(request.arguments.unwrap_or_default());
        let result = tokio::select! {
            result = (tool.call)(Arc::clone(&self.connection), input) => result,
            // The client has cancelled the call.
            () = context.ct.cancelled() => Err("cancelled".to_owned()),
        };
        Ok(match result {
            Ok(text) => CallToolResult::success(vec![ContentBlock::text(text)]),
            Err(why) => CallToolResult::error(vec![ContentBlock::text(why)]),
        }
        .into())
    }
}

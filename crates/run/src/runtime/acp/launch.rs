//! The command line and the instructions of cowhand's ACP client.

use std::path::Path;

use cowhand_core::mcp::{McpServer, McpTransport};
use serde_json::{Value, json};

use super::super::description::{Capabilities, CommandLine, Description, LaunchRequest, OWN_PROGRAM};
use super::super::gemini::ChatRecord;
use super::super::input::InputFormat;
use super::super::{Reader, SessionChoice};
use super::Acp;
use super::usage::AcpUsage;
use crate::acp::{Instructions, MISSING_SESSION, PermissionRules, STARTUP_TIMEOUT, SessionRequest};
use crate::process::StopSignal;

pub(in super::super) const DESCRIPTION: Description = Description {
    program: None,
    oldest: None,
    // The agent states its capabilities when it starts; the client then uses them or reports that they are missing.
    capabilities: Capabilities {
        resume: true,
        fork: true,
        cost: true,
        session_id: false,
        asks: true,
        messages: true,
    },
    plan,
    reader: Reader::acp,
    interactive: &[],
    missing_session_messages: &[MISSING_SESSION],
    // The agent's program and its folders are known only from the config, so the sandbox takes them from there.
    variable_prefixes: &[],
    homes: &[],
    provider: None,
};

const INSTRUCTIONS_FILE: &str = "acp.json";

fn plan(request: &LaunchRequest<'_>) -> CommandLine {
    let agent = request.agent;
    let instructions = Instructions {
        command: agent.program.command.clone(),
        session: match request.session {
            SessionChoice::Fresh | SessionChoice::FreshAs(_) => SessionRequest::Fresh,
            SessionChoice::Resume(id) => SessionRequest::Resume(id.clone()),
            SessionChoice::Fork { of, .. } => SessionRequest::Fork(of.clone()),
        },
        model: agent.program.model.clone(),
        rules: PermissionRules {
            mode: agent.tools.mode,
            tools: agent.tools.available.clone(),
            allowed: agent.tools.allowed.clone(),
            denied: agent.tools.denied.clone(),
        },
        mcp_servers: agent.mcp_servers.iter().map(|(name, each)| server(name, each)).collect(),
        timeout_ms: u64::try_from(STARTUP_TIMEOUT.as_millis()).unwrap_or(u64::MAX),
        has_messages: true,
    };
    let resumes = match request.session {
        SessionChoice::Resume(id) => Some(id.clone()),
        SessionChoice::Fresh | SessionChoice::FreshAs(_) | SessionChoice::Fork { .. } => None,
    };
    let is_resumed = !matches!(request.session, SessionChoice::Fresh | SessionChoice::FreshAs(_));
    let program = instructions.command.first().and_then(|program| Path::new(program).file_name());
    let is_gemini = program.is_some_and(|name| name == "gemini");
    let chat = is_gemini.then(|| ChatRecord::starting_now(request.environment));
    let spent = AcpUsage::new(agent.program.model.clone(), is_resumed).with_record(chat);
    CommandLine {
        argv: vec![
            OWN_PROGRAM.to_owned(),
            "acp".to_owned(),
            request.file(INSTRUCTIONS_FILE).display().to_string(),
        ],
        defaults: Vec::new(),
        environment: Vec::new(),
        // `json!` does not panic here, because these instructions can always be serialised.
        files: vec![(INSTRUCTIONS_FILE.to_owned(), json!(instructions).to_string())],
        stop_signal: StopSignal::Interrupt,
        reader: Reader::Acp(Acp { resumes, spent, ..Acp::default() }),
        input: Some(InputFormat::Acp),
    }
}

/// Converts an MCP server to the form of the protocol: maps become lists of names and values, and transports other than
/// stdio have a type.
fn server(name: &str, server: &McpServer) -> Value {
    let pairs = |map: &indexmap::IndexMap<String, String>| -> Vec<Value> {
        map.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect()
    };
    let remote = |way: &str| json!({ "type": way, "name": name, "url": server.url, "headers": pairs(&server.headers) });
    match server.transport {
        McpTransport::Stdio => json!({
            "name": name, "command": server.command, "args": server.args,
            "env": pairs(&server.env),
        }),
        McpTransport::Http => remote("http"),
        McpTransport::Sse => remote("sse"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use cowhand_core::roster::Agent;

    use super::*;

    #[test]
    fn settings_are_passed_in_a_private_file() {
        let settings = r#"{"command": ["gemini", "--acp"], "model": "flash", "permission_mode": "plan",
            "tools": ["Read"], "allowed_tools": ["Bash"], "denied_tools": ["fetch"],
            "mcp_servers": {"s": {"command": "serve", "args": ["x"], "env": {"TOKEN": "canary"}},
                            "h": {"url": "http://x", "headers": {"A": "b"}}, "e": {"type": "sse", "url": "http://y"}}}"#;
        let agent = Agent::from_config("coder".parse().unwrap(), serde_json::from_str(settings).unwrap());
        let environment = HashMap::new();
        let session = SessionChoice::Resume("s-1".to_owned());
        let request = LaunchRequest {
            agent: &agent,
            session: &session,
            folder: Path::new("/p"),
            environment: &environment,
        };
        let plan = plan(&request);
        assert_eq!(plan.argv, ["(cowhand)", "acp", "/p/acp.json"]);
        assert_eq!(plan.files.len(), 1);
        let instructions: Value = serde_json::from_str(&plan.files[0].1).unwrap();
        assert_eq!(
            instructions,
            json!({
                "command": ["gemini", "--acp"], "session": {"resume": "s-1"}, "model": "flash",
                "rules": {"mode": "plan", "tools": ["Read"], "allowed": ["Bash"], "denied": ["fetch"]},
                "mcp_servers": [
                    {"name": "s", "command": "serve", "args": ["x"], "env": [{"name": "TOKEN", "value": "canary"}]},
                    {"type": "http", "name": "h", "url": "http://x", "headers": [{"name": "A", "value": "b"}]},
                    {"type": "sse", "name": "e", "url": "http://y", "headers": []},
                ],
                "patience_ms": 60_000, "has_messages": true,
            })
        );
        assert!(serde_json::from_value::<Instructions>(instructions).is_ok());
    }
}

//! How the Gemini CLI is started.

use cowhand_core::config::shape::{McpServer, McpTransport, PermissionMode};
use serde_json::{Map, Value, json};

use super::super::plan::{Capabilities, Description, Order, Plan, transport};
use super::super::{Reader, Session};
use crate::run::attempt::StopSignal;

pub(in super::super) const DESCRIPTION: Description = Description {
    program: Some("gemini"),
    oldest: Some([0, 50, 0]),
    capabilities: Capabilities { resume: true, fork: false, cost: false, session_id: true },
    plan,
    reader: Reader::gemini,
};

const SETTINGS_FILE: &str = "gemini-settings.json";
const PROMPT_FILE: &str = "system-prompt.md";

fn plan(order: &Order<'_>) -> Plan {
    let settings = &order.agent.settings;
    let mut argv: Vec<String> =
        ["gemini", "--output-format", "stream-json", "--approval-mode"].map(str::to_owned).into();
    argv.push(approval_mode(order.permission_mode()).to_owned());
    argv.extend(settings.model.iter().flat_map(|model| ["--model".to_owned(), model.clone()]));
    argv.extend(match order.session {
        Session::Resume(id) | Session::Fork { of: id, .. } => vec!["--resume".to_owned(), id.clone()],
        Session::FreshAs(id) => vec!["--session-id".to_owned(), id.clone()],
        Session::Fresh => Vec::new(),
    });
    let (mut environment, mut files) = (Vec::new(), Vec::new());
    let mut give = |variable: &str, name: &str, text: String| {
        environment.push((variable.to_owned(), order.file(name).display().to_string()));
        files.push((name.to_owned(), text));
    };
    let own = own_settings(order);
    if !own.is_empty() {
        give("GEMINI_CLI_SYSTEM_SETTINGS_PATH", SETTINGS_FILE, Value::Object(own).to_string());
    }
    if let Some(prompt) = &settings.system_prompt {
        give("GEMINI_SYSTEM_MD", PROMPT_FILE, prompt.clone());
    }
    Plan {
        argv,
        defaults: vec![
            // The process that it would put in front of itself ignores signals.
            ("GEMINI_CLI_NO_RELAUNCH", "true".to_owned()),
            // A directory that the config names is one to work in.
            ("GEMINI_CLI_TRUST_WORKSPACE", "true".to_owned()),
        ],
        environment,
        files,
        stop_signal: StopSignal::Interrupt,
        reader: Reader::gemini(),
    }
}

/// Nobody is there to ask: what would be asked for is refused.
const fn approval_mode(mode: PermissionMode) -> &'static str {
    match mode {
        PermissionMode::Default | PermissionMode::DontAsk => "default",
        PermissionMode::AcceptEdits | PermissionMode::Delegate => "auto_edit",
        PermissionMode::BypassPermissions => "yolo",
        PermissionMode::Plan => "plan",
    }
}

/// Settings that stand above the user's own.
fn own_settings(order: &Order<'_>) -> Map<String, Value> {
    let settings = &order.agent.settings;
    let mut own = Map::new();
    if let Some(turns) = order.max_turns() {
        own.insert("model".to_owned(), json!({ "maxSessionTurns": turns }));
    }
    let some = |list: &Option<Vec<String>>| list.clone().filter(|list| !list.is_empty());
    let tools = [
        ("core", some(&settings.tools)),
        ("allowed", some(&settings.allowed_tools)),
        ("exclude", some(&settings.denied_tools)),
    ];
    let tools: Map<_, _> =
        tools.into_iter().filter_map(|(key, list)| Some((key.to_owned(), json!(list?)))).collect();
    if !tools.is_empty() {
        own.insert("tools".to_owned(), Value::Object(tools));
    }
    if !settings.mcp_servers.is_empty() {
        let servers = settings.mcp_servers.iter().map(|(name, each)| (name.clone(), server(each)));
        own.insert("mcpServers".to_owned(), servers.collect::<Map<_, _>>().into());
    }
    own
}

fn server(server: &McpServer) -> Value {
    let McpServer { command, args, env, url, headers, timeout, .. } = server;
    let mut fields = match transport(server) {
        McpTransport::Stdio => json!({ "command": command, "args": args, "env": env }),
        McpTransport::Http => json!({ "url": url, "type": "http", "headers": headers }),
        McpTransport::Sse => json!({ "url": url, "type": "sse", "headers": headers }),
    };
    fields["timeout"] = json!(timeout);
    if let Some(fields) = fields.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    fields
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::path::Path;

    use cowhand_core::roster::Agent;

    use super::*;

    fn plan_of(settings: &str, session: &Session) -> Plan {
        let mut agent = Agent::new("coder".parse().unwrap());
        agent.settings = serde_json::from_str(settings).unwrap();
        let environment = HashMap::new();
        plan(&Order { agent: &agent, session, folder: Path::new("/p"), environment: &environment })
    }

    #[test]
    fn arguments_follow_the_settings() {
        for (settings, session, expected) in [
            ("{}", Session::Fresh, "auto_edit"),
            (r#"{"permission_mode": "plan", "model": "flash"}"#, Session::Fresh, "plan --model flash"),
            (r#"{"permission_mode": "dontAsk"}"#, Session::Resume("s".into()), "default --resume s"),
            (
                r#"{"permission_mode": "bypassPermissions"}"#,
                Session::FreshAs("s".into()),
                "yolo --session-id s",
            ),
        ] {
            let plan = plan_of(settings, &session);
            let expected = format!("gemini --output-format stream-json --approval-mode {expected}");
            assert_eq!(plan.argv.join(" "), expected, "{settings}");
            assert_eq!((plan.environment, plan.files), (vec![], vec![]), "{settings}");
        }
    }

    #[test]
    fn the_rest_goes_by_files() {
        let settings = r#"{"max_turns": 3, "tools": ["read_file"], "allowed_tools": ["run_shell_command(git)"],
            "denied_tools": ["web_fetch"], "system_prompt": "Be brief.",
            "mcp_servers": {"s": {"command": "serve", "env": {"TOKEN": "canary"}}, "h": {"url": "http://x"}}}"#;
        let plan = plan_of(settings, &Session::Fresh);
        assert!(!plan.argv.join(" ").contains("canary"));
        let variables: Vec<_> =
            plan.environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(
            variables,
            [
                "GEMINI_CLI_SYSTEM_SETTINGS_PATH=/p/gemini-settings.json",
                "GEMINI_SYSTEM_MD=/p/system-prompt.md"
            ]
        );
        let written: Value = serde_json::from_str(&plan.files[0].1).unwrap();
        assert_eq!(
            written,
            json!({
                "model": {"maxSessionTurns": 3},
                "tools": {"core": ["read_file"], "allowed": ["run_shell_command(git)"], "exclude": ["web_fetch"]},
                "mcpServers": {
                    "s": {"command": "serve", "env": {"TOKEN": "canary"}},
                    "h": {"url": "http://x", "type": "http"},
                },
            })
        );
        assert_eq!(plan.files[1], (PROMPT_FILE.to_owned(), "Be brief.".to_owned()));
    }
}

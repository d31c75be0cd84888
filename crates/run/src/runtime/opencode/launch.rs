//! The command line of OpenCode, and the config that OpenCode gets in a variable.

use std::collections::HashMap;

use cowhand_core::mcp::{McpServer, McpTransport};
use cowhand_core::permission::PermissionMode;
use cowhand_core::roster::Agent;
use serde_json::{Map, Value, json};

use super::super::description::{
    Capabilities, CommandLine, Description, LaunchRequest, ProviderAccess, ProxySettings, RuntimePath,
};
use super::super::{Reader, SessionChoice};
use super::Opencode;
use crate::process::StopSignal;

pub(in super::super) const DESCRIPTION: Description = Description {
    program: Some("opencode"),
    oldest: Some([1, 0, 0]),
    capabilities: Capabilities {
        resume: true,
        fork: true,
        cost: true,
        session_id: false,
        asks: false,
        messages: false,
    },
    plan,
    reader: Reader::opencode,
    interactive: &["--session"],
    missing_session_messages: &["Session not found"],
    variable_prefixes: &["OPENCODE_"],
    homes: &[
        RuntimePath { below: "opencode", ..RuntimePath::folder("XDG_DATA_HOME", ".local/share") },
        RuntimePath { below: "opencode", ..RuntimePath::folder("XDG_STATE_HOME", ".local/state") },
        RuntimePath { below: "opencode", ..RuntimePath::folder("XDG_CONFIG_HOME", ".config") },
        RuntimePath { below: "opencode", ..RuntimePath::folder("XDG_CACHE_HOME", ".cache") },
    ],
    provider: Some(provider),
};

/// Returns the address and the key of the model's provider, whose name is the word before the slash in the model's
/// name. Every provider except `anthropic` counts as compatible with `OpenAI`.
fn provider(agent: &Agent) -> ProviderAccess {
    match provider_of(agent) {
        Some("anthropic") => ProviderAccess {
            address_variable: "ANTHROPIC_BASE_URL",
            default_address: "https://api.anthropic.com",
            keys: &[("ANTHROPIC_API_KEY", "x-api-key", "")],
            configure,
        },
        of => ProviderAccess {
            address_variable: "OPENAI_BASE_URL",
            // Other OpenAI-compatible providers need an explicit address, or their key would be sent to OpenAI.
            default_address: if of == Some("openai") { "https://api.openai.com/v1" } else { "" },
            keys: &[("OPENAI_API_KEY", "authorization", "Bearer ")],
            configure,
        },
    }
}

fn provider_of(agent: &Agent) -> Option<&str> {
    agent.program.model.as_deref()?.split_once('/').map(|(provider, _)| provider)
}

/// Writes the address of the credential proxy and the placeholder of the key to the config, because OpenCode takes the
/// provider's address only from its config.
fn configure(settings: &mut ProxySettings<'_>) {
    let Some(provider) = provider_of(settings.agent) else { return };
    let below = if provider == "anthropic" { "/v1" } else { "" };
    let (url, key) =
        (format!("{}{below}", settings.proxy_address), settings.environment.get(settings.key_variable));
    let options = json!({ "baseURL": url, "apiKey": key });
    let mut config = own_config(settings.environment);
    merge(&mut config, json!({ "provider": { provider: { "options": options } } }));
    settings.environment.insert(CONFIG_VARIABLE.to_owned(), config.to_string());
}

fn own_config(environment: &HashMap<String, String>) -> Value {
    let own = environment.get(CONFIG_VARIABLE).and_then(|own| serde_json::from_str(own).ok());
    own.unwrap_or_else(|| json!({}))
}

/// Variable with a config as JSON. OpenCode merges this config over its config files.
const CONFIG_VARIABLE: &str = "OPENCODE_CONFIG_CONTENT";

fn plan(request: &LaunchRequest<'_>) -> CommandLine {
    let agent = request.agent;
    let mode = agent.tools.mode;
    let mut argv: Vec<String> = ["opencode", "run", "--format", "json"].map(str::to_owned).into();
    argv.extend(agent.program.model.iter().flat_map(|model| ["--model".to_owned(), model.clone()]));
    if mode == PermissionMode::BypassPermissions {
        argv.push("--auto".to_owned());
    }
    if mode == PermissionMode::Plan {
        argv.extend(["--agent", "plan"].map(str::to_owned));
    }
    match request.session {
        SessionChoice::Fresh | SessionChoice::FreshAs(_) => {}
        SessionChoice::Resume(id) => argv.extend(["--session".to_owned(), id.clone()]),
        SessionChoice::Fork { of, .. } => {
            argv.extend(["--session".to_owned(), of.clone(), "--fork".to_owned()]);
        }
    }
    let mut config = own_config(request.environment);
    merge(&mut config, config_of(request));
    let reader = Opencode { model: agent.program.model.clone(), ..Opencode::default() };
    CommandLine {
        argv,
        // An agent must not update the program that other agents use.
        defaults: vec![("OPENCODE_DISABLE_AUTOUPDATE", "1".to_owned())],
        environment: vec![(CONFIG_VARIABLE.to_owned(), config.to_string())],
        files: Vec::new(),
        stop_signal: StopSignal::Interrupt,
        reader: Reader::Opencode(reader),
        input: None,
    }
}

fn config_of(request: &LaunchRequest<'_>) -> Value {
    let agent = request.agent;
    let mut config = json!({ "permission": permissions(request) });
    let mode = if agent.tools.mode == PermissionMode::Plan { "plan" } else { "build" };
    if let Some(prompt) = &agent.system_prompt {
        config["agent"][mode]["prompt"] = json!(prompt);
    }
    if let Some(turns) = agent.max_turns {
        config["agent"][mode]["steps"] = json!(turns);
    }
    if !agent.mcp_servers.is_empty() {
        let servers = agent.mcp_servers.iter().map(|(name, each)| (name.clone(), server(each)));
        config["mcp"] = servers.collect::<Map<_, _>>().into();
    }
    config
}

/// Returns the permissions. No person can be asked, so a tool that would need permission is denied; OpenCode itself
/// would allow everything. Later rules win, so the denied tools of the config come last.
fn permissions(request: &LaunchRequest<'_>) -> Value {
    let agent = request.agent;
    let mut rules = Map::new();
    if let Some(tools) = &agent.tools.available {
        rules.insert("*".to_owned(), json!("deny"));
        for tool in tools {
            rule(&mut rules, tool, "allow");
        }
    }
    match agent.tools.mode {
        PermissionMode::Default | PermissionMode::DontAsk | PermissionMode::Plan | PermissionMode::Ask => {
            rules.insert("edit".to_owned(), json!("deny"));
            rules.insert("bash".to_owned(), json!("deny"));
        }
        PermissionMode::AcceptEdits | PermissionMode::Delegate => {
            rules.insert("bash".to_owned(), json!("deny"));
        }
        PermissionMode::BypassPermissions => {}
    }
    agent.tools.allowed.iter().for_each(|tool| rule(&mut rules, tool, "allow"));
    agent.tools.denied.iter().for_each(|tool| rule(&mut rules, tool, "deny"));
    Value::Object(rules)
}

/// Adds a rule for a tool, such as `bash`, or for a tool with a pattern, such as `bash(git *)`.
fn rule(rules: &mut Map<String, Value>, tool: &str, verdict: &str) {
    let Some((tool, pattern)) = tool.split_once('(') else {
        rules.shift_remove(tool);
        rules.insert(tool.to_owned(), json!(verdict));
        return;
    };
    let pattern = pattern.trim_end_matches(')');
    let before = rules.shift_remove(tool);
    let mut patterns = match before {
        Some(Value::Object(patterns)) => patterns,
        Some(verdict) => Map::from_iter([("*".to_owned(), verdict)]),
        None => Map::new(),
    };
    patterns.shift_remove(pattern);
    patterns.insert(pattern.to_owned(), json!(verdict));
    rules.insert(tool.to_owned(), Value::Object(patterns));
}

fn server(server: &McpServer) -> Value {
    let McpServer { transport, command, args, env, url, headers, timeout, .. } = server;
    let mut fields = match transport {
        McpTransport::Stdio => {
            let words: Vec<&String> = command.iter().chain(args).collect();
            json!({ "type": "local", "command": words, "environment": (!env.is_empty()).then_some(env) })
        }
        McpTransport::Http | McpTransport::Sse => {
            json!({ "type": "remote", "url": url, "headers": (!headers.is_empty()).then_some(headers) })
        }
    };
    fields["timeout"] = json!(timeout);
    if let Some(fields) = fields.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    fields
}

/// Merges `above` into `below`: objects are merged, other values are replaced.
fn merge(below: &mut Value, above: Value) {
    match (below, above) {
        (Value::Object(below), Value::Object(above)) => {
            for (key, value) in above {
                merge(below.entry(key).or_insert(Value::Null), value);
            }
        }
        (below, above) => *below = above,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn plan_of(settings: &str, session: &SessionChoice) -> (String, Value) {
        let agent = Agent::from_config("coder".parse().unwrap(), serde_json::from_str(settings).unwrap());
        let environment = HashMap::from([(
            CONFIG_VARIABLE.to_owned(),
            r#"{"theme":"x","permission":{"webfetch":"deny"}}"#.to_owned(),
        )]);
        let plan = plan(&LaunchRequest {
            agent: &agent,
            session,
            folder: Path::new("/p"),
            environment: &environment,
        });
        (plan.argv.join(" "), serde_json::from_str(&plan.environment[0].1).unwrap())
    }

    #[test]
    fn arguments_follow_the_settings() {
        for (settings, session, expected) in [
            ("{}", SessionChoice::Fresh, ""),
            (
                r#"{"permission_mode": "bypassPermissions", "model": "p/m"}"#,
                SessionChoice::Fresh,
                " --model p/m --auto",
            ),
            (
                r#"{"permission_mode": "plan"}"#,
                SessionChoice::Resume("s".into()),
                " --agent plan --session s",
            ),
            ("{}", SessionChoice::Fork { of: "s".into(), as_id: None }, " --session s --fork"),
        ] {
            assert_eq!(
                plan_of(settings, &session).0,
                format!("opencode run --format json{expected}"),
                "{settings}"
            );
        }
    }

    #[test]
    fn the_config_is_passed_in_the_environment() {
        let settings = r#"{"max_turns": 3, "tools": ["read", "bash"], "allowed_tools": ["bash(git *)"],
            "denied_tools": ["webfetch"], "system_prompt": "Be brief.",
            "mcp_servers": {"s": {"command": "serve", "args": ["x"], "env": {"TOKEN": "canary"}}, "h": {"url": "http://x"}}}"#;
        let (argv, config) = plan_of(settings, &SessionChoice::Fresh);
        assert!(!argv.contains("canary"));
        assert_eq!(
            config,
            json!({
                "theme": "x",
                "permission": {"webfetch": "deny", "*": "deny", "read": "allow", "bash": {"*": "deny", "git *": "allow"}},
                "agent": {"build": {"prompt": "Be brief.", "steps": 3}},
                "mcp": {
                    "s": {"type": "local", "command": ["serve", "x"], "environment": {"TOKEN": "canary"}},
                    "h": {"type": "remote", "url": "http://x"},
                },
            })
        );
    }
}

//! The command line of Codex.

use std::path::Path;

use cowhand_core::mcp::{McpServer, McpTransport};
use cowhand_core::permission::PermissionMode;
use serde_json::json;

use super::super::description::{
    Capabilities, CommandLine, Description, LaunchRequest, ProviderAccess, ProxySettings, RuntimePath,
};
use super::super::{Reader, SessionChoice};
use super::{Codex, rollout};
use crate::process::StopSignal;

pub(in super::super) const DESCRIPTION: Description = Description {
    program: Some("codex"),
    oldest: Some([0, 150, 0]),
    capabilities: Capabilities {
        resume: true,
        fork: true,
        cost: false,
        session_id: false,
        asks: false,
        messages: false,
    },
    plan,
    reader: Reader::codex,
    interactive: &["resume"],
    missing_session_messages: &["no rollout found for thread id {id}"],
    variable_prefixes: &["OPENAI_", "CODEX_"],
    homes: &[RuntimePath::folder("CODEX_HOME", ".codex")],
    provider: Some(|_| ProviderAccess {
        address_variable: "OPENAI_BASE_URL",
        default_address: "https://api.openai.com/v1",
        keys: &[
            ("OPENAI_API_KEY", "authorization", "Bearer "),
            ("CODEX_API_KEY", "authorization", "Bearer "),
        ],
        configure,
    }),
};

/// Configures a custom provider, because Codex's default provider requires a login.
fn configure(settings: &mut ProxySettings<'_>) {
    let provider = [
        ("name", json!("cowhand")),
        ("base_url", json!(settings.proxy_address)),
        ("env_key", json!(settings.key_variable)),
        ("wire_api", json!("responses")),
    ];
    let provider = provider.map(|(key, value)| format!("model_providers.cowhand.{key}={value}")).into_iter();
    let words = provider.chain(["model_provider=\"cowhand\"".to_owned()]);
    // The options come after `codex exec`.
    let at = 2.min(settings.argv.len());
    settings.argv.splice(at..at, words.flat_map(|word| ["-c".to_owned(), word]));
}

fn plan(request: &LaunchRequest<'_>) -> CommandLine {
    let agent = request.agent;
    // The working directory need not be a git repository.
    let mut argv: Vec<String> =
        ["codex", "exec", "--json", "--skip-git-repo-check"].map(str::to_owned).into();
    let mut set = |key: &str, value: &str| argv.extend(["-c".to_owned(), format!("{key}={value}")]);
    set("sandbox_mode", &json!(sandbox(agent.tools.mode)).to_string());
    // No person can be asked.
    set("approval_policy", &json!("never").to_string());
    if let Some(prompt) = &agent.system_prompt {
        set("developer_instructions", &json!(prompt).to_string());
    }
    let mut private = Private::default();
    let names: Vec<&str> = agent.mcp_servers.keys().map(String::as_str).collect();
    let servers = agent.mcp_servers.values().zip(server_keys(&names));
    for (index, (server, server_key)) in servers.enumerate() {
        for (key, value) in private.server(request.folder, index, server) {
            set(&format!("mcp_servers.{server_key}.{key}"), &value);
        }
    }
    argv.extend(agent.program.model.iter().flat_map(|model| ["--model".to_owned(), model.clone()]));
    let before = match request.session {
        SessionChoice::Fresh | SessionChoice::FreshAs(_) => None,
        SessionChoice::Resume(id) => Some(("resume", id)),
        SessionChoice::Fork { of, .. } => Some(("fork", of)),
    };
    argv.extend(before.iter().flat_map(|(verb, id)| [(*verb).to_owned(), (*id).clone()]));
    // The prompt comes on stdin.
    argv.push("-".to_owned());
    let used =
        before.map(|(_, id)| rollout::used(&request.home("CODEX_HOME", ".codex"), id)).unwrap_or_default();
    CommandLine {
        argv,
        defaults: Vec::new(),
        environment: private.environment,
        files: private.files,
        stop_signal: StopSignal::Interrupt,
        input: None,
        reader: Reader::Codex(Codex {
            before: used,
            home: Some(request.home("CODEX_HOME", ".codex")),
            model: agent.program.model.clone(),
            ..Codex::default()
        }),
    }
}

/// Returns the mode of Codex's own sandbox for a permission mode. No person can be asked, so Codex's sandbox forbids
/// the actions that would need permission.
const fn sandbox(mode: PermissionMode) -> &'static str {
    match mode {
        PermissionMode::Default | PermissionMode::Plan | PermissionMode::Ask => "read-only",
        PermissionMode::AcceptEdits | PermissionMode::Delegate | PermissionMode::DontAsk => "workspace-write",
        PermissionMode::BypassPermissions => "danger-full-access",
    }
}

/// Returns the name as a key of TOML: `_` replaces each character that a dotted key cannot contain.
fn key_of(name: &str) -> String {
    let replaced = |letter: char| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' };
    name.chars().map(replaced).collect()
}

/// Returns a different key for each name of a server. A key that is equal to another name or key gets a number.
fn server_keys(names: &[&str]) -> Vec<String> {
    let mut keys: Vec<String> = Vec::new();
    for name in names {
        let is_free = |key: &String| key == name || !(names.contains(&key.as_str()) || keys.contains(key));
        let key = key_of(name);
        let numbered = (2_u64..).map(|number| format!("{key}_{number}"));
        let free = std::iter::once(key.clone()).chain(numbered).find(is_free).unwrap_or(key);
        keys.push(free);
    }
    keys
}

/// Settings of MCP servers that must not appear in the arguments.
#[derive(Default)]
struct Private {
    files: Vec<(String, String)>,
    environment: Vec<(String, String)>,
}

impl Private {
    /// Returns the keys of a server with their values in TOML, and adds its secrets to the files and the environment.
    /// JSON strings, numbers and lists are valid TOML.
    fn server(&mut self, folder: &Path, index: usize, server: &McpServer) -> Vec<(&'static str, String)> {
        let mut keys = Vec::new();
        if server.transport == McpTransport::Stdio {
            // Codex accepts the environment of a server only in Codex's config and arguments, so a script sets it.
            let name = format!("mcp-{index}.sh");
            keys.push(("command", json!("sh").to_string()));
            keys.push(("args", json!([folder.join(&name)]).to_string()));
            self.files.push((name, script(server)));
        } else {
            keys.push(("url", json!(server.url.as_deref().unwrap_or_default()).to_string()));
            let headers = server.headers.iter().enumerate().map(|(header, (name, value))| {
                let variable = format!("COWHAND_MCP_{index}_{header}");
                let named = format!("{} = {}", json!(name), json!(variable));
                self.environment.push((variable, value.clone()));
                named
            });
            let headers: Vec<String> = headers.collect();
            keys.extend(
                (!headers.is_empty()).then(|| ("env_http_headers", format!("{{{}}}", headers.join(", ")))),
            );
        }
        keys.extend(server.timeout.map(|timeout| ("tool_timeout_sec", timeout.div_ceil(1000).to_string())));
        keys
    }
}

/// Returns a script that sets the environment and executes the server.
fn script(server: &McpServer) -> String {
    let set = server
        .env
        .iter()
        .map(|(name, value)| format!("export {}={}\n", key_of(name).replace('-', "_"), quoted(value)));
    let words = server.command.iter().chain(&server.args).map(|word| quoted(word));
    format!("{}exec {}\n", set.collect::<String>(), words.collect::<Vec<_>>().join(" "))
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use cowhand_core::roster::Agent;

    use super::*;

    fn plan_of(settings: &str, session: &SessionChoice) -> CommandLine {
        let agent = Agent::from_config("coder".parse().unwrap(), serde_json::from_str(settings).unwrap());
        let environment = HashMap::new();
        plan(&LaunchRequest { agent: &agent, session, folder: Path::new("/p"), environment: &environment })
    }

    #[test]
    fn arguments_follow_the_settings() {
        let always = "codex exec --json --skip-git-repo-check -c sandbox_mode=";
        let (of, id) = ("t-1".to_owned(), "t-1".to_owned());
        for (settings, session, expected) in [
            ("{}", SessionChoice::Fresh, "\"workspace-write\" -c approval_policy=\"never\" -"),
            (
                r#"{"permission_mode": "plan", "model": "gpt-9"}"#,
                SessionChoice::Fresh,
                "\"read-only\" -c approval_policy=\"never\" --model gpt-9 -",
            ),
            (
                r#"{"permission_mode": "bypassPermissions"}"#,
                SessionChoice::Resume(id),
                "\"danger-full-access\" -c approval_policy=\"never\" resume t-1 -",
            ),
            (
                r#"{"system_prompt": "Brief."}"#,
                SessionChoice::Fork { of, as_id: None },
                "\"workspace-write\" -c approval_policy=\"never\" -c developer_instructions=\"Brief.\" fork t-1 -",
            ),
        ] {
            assert_eq!(
                plan_of(settings, &session).argv.join(" "),
                format!("{always}{expected}"),
                "{settings}"
            );
        }
    }

    #[test]
    fn each_server_has_its_own_key() {
        for (names, expected) in [
            (&["files", "far.away"][..], &["files", "far_away"][..]),
            (&["a.b", "a_b"], &["a_b_2", "a_b"]),
            (&["a_b", "a.b", "a b", "a_b_2"], &["a_b", "a_b_3", "a_b_4", "a_b_2"]),
            (&["a.b", "a b"], &["a_b", "a_b_2"]),
        ] {
            assert_eq!(server_keys(names), expected, "{names:?}");
        }
        let settings = r#"{"mcp_servers": {"a.b": {"command": "one"}, "a_b": {"command": "two"}}}"#;
        let argv = plan_of(settings, &SessionChoice::Fresh).argv.join(" ");
        assert!(argv.contains("mcp_servers.a_b.") && argv.contains("mcp_servers.a_b_2."), "{argv}");
    }

    #[test]
    fn secrets_of_mcp_servers_are_not_arguments() {
        let settings = r#"{"mcp_servers": {
            "files": {"command": "serve", "args": ["it's"], "env": {"TOKEN": "canary one"}},
            "far.away": {"url": "http://127.0.0.1:1/mcp", "headers": {"Authorization": "canary two"}, "timeout": 1500}
        }}"#;
        let plan = plan_of(settings, &SessionChoice::Fresh);
        let argv = plan.argv.join(" ");
        assert!(!argv.contains("canary"), "{argv}");
        assert!(argv.contains(r#"-c mcp_servers.files.args=["/p/mcp-0.sh"]"#), "{argv}");
        assert!(
            argv.contains(
                r#"-c mcp_servers.far_away.env_http_headers={"Authorization" = "COWHAND_MCP_1_0"}"#
            )
        );
        assert!(argv.contains("-c mcp_servers.far_away.tool_timeout_sec=2"), "{argv}");
        let script = "export TOKEN='canary one'\nexec 'serve' 'it'\\''s'\n";
        assert_eq!(plan.files, [("mcp-0.sh".to_owned(), script.to_owned())]);
        assert_eq!(plan.environment, [("COWHAND_MCP_1_0".to_owned(), "canary two".to_owned())]);
    }
}

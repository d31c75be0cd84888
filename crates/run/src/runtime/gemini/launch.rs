//! The command line of the Gemini CLI.

use cowhand_core::permission::PermissionMode;
use serde_json::json;

use super::super::description::{
    Capabilities, CommandLine, Description, LaunchRequest, ProviderAccess, RuntimePath, no_configuration,
};
use super::super::{Reader, SessionChoice};
use super::Gemini;
use crate::process::StopSignal;

pub(in super::super) const DESCRIPTION: Description = Description {
    program: Some("gemini"),
    oldest: Some([0, 50, 0]),
    capabilities: Capabilities {
        resume: true,
        fork: false,
        cost: false,
        session_id: true,
        asks: false,
        messages: false,
    },
    plan,
    reader: Reader::gemini,
    interactive: &["--resume"],
    missing_session_messages: &[
        "Invalid session identifier \"{id}\"",
        "No previous sessions found for this project",
    ],
    variable_prefixes: &["GEMINI_", "GOOGLE_"],
    homes: &[HOME],
    provider: Some(|_| ProviderAccess {
        address_variable: "GOOGLE_GEMINI_BASE_URL",
        default_address: "https://generativelanguage.googleapis.com",
        keys: &[("GEMINI_API_KEY", "x-goog-api-key", ""), ("GOOGLE_API_KEY", "x-goog-api-key", "")],
        configure: no_configuration,
    }),
};

/// Settings that make Gemini use an API key. Without them, Gemini uses no key if its environment has a base URL.
const API_KEY_SETTINGS: &str = r#"{"security":{"auth":{"selectedType":"gemini-api-key"}}}"#;

pub(super) const HOME: RuntimePath = RuntimePath {
    below: ".gemini",
    required_file: Some(("settings.json", API_KEY_SETTINGS)),
    ..RuntimePath::folder("GEMINI_CLI_HOME", "")
};

const POLICY_FILE: &str = "gemini-policy.toml";
const PROMPT_FILE: &str = "system-prompt.md";

fn plan(request: &LaunchRequest<'_>) -> CommandLine {
    let agent = request.agent;
    let mut argv: Vec<String> =
        ["gemini", "--output-format", "stream-json", "--approval-mode"].map(str::to_owned).into();
    argv.push(approval_mode(agent.tools.mode).to_owned());
    argv.extend(agent.program.model.iter().flat_map(|model| ["--model".to_owned(), model.clone()]));
    argv.extend(match request.session {
        SessionChoice::Resume(id) | SessionChoice::Fork { of: id, .. } => {
            vec!["--resume".to_owned(), id.clone()]
        }
        SessionChoice::FreshAs(id) => vec!["--session-id".to_owned(), id.clone()],
        SessionChoice::Fresh => Vec::new(),
    });
    let (mut environment, mut files) = (Vec::new(), Vec::new());
    let rules = rules(request);
    if !rules.is_empty() {
        argv.extend(["--policy".to_owned(), request.file(POLICY_FILE).display().to_string()]);
        files.push((POLICY_FILE.to_owned(), rules));
    }
    if let Some(prompt) = &agent.system_prompt {
        let file = request.file(PROMPT_FILE).display().to_string();
        environment.push(("GEMINI_SYSTEM_MD".to_owned(), file));
        files.push((PROMPT_FILE.to_owned(), prompt.clone()));
    }
    CommandLine {
        argv,
        defaults: vec![
            // Without this variable, Gemini starts itself again, and the parent process ignores signals.
            ("GEMINI_CLI_NO_RELAUNCH", "true".to_owned()),
            // A directory that the config names is trusted.
            ("GEMINI_CLI_TRUST_WORKSPACE", "true".to_owned()),
        ],
        environment,
        files,
        stop_signal: StopSignal::Interrupt,
        reader: Reader::Gemini(Gemini::with_chat_record(request.environment)),
        input: None,
    }
}

/// Returns Gemini's approval mode for a permission mode. No person can be asked, so Gemini refuses a tool that would
/// need permission.
const fn approval_mode(mode: PermissionMode) -> &'static str {
    match mode {
        PermissionMode::Default | PermissionMode::DontAsk | PermissionMode::Ask => "default",
        PermissionMode::AcceptEdits | PermissionMode::Delegate => "auto_edit",
        PermissionMode::BypassPermissions => "yolo",
        PermissionMode::Plan => "plan",
    }
}

/// Tools that only read.
const READING_TOOLS: [&str; 7] = [
    "read_file",
    "read_many_files",
    "list_directory",
    "glob",
    "grep_search",
    "google_web_search",
    "web_fetch",
];
/// Tools that write files.
const WRITING_TOOLS: [&str; 2] = ["replace", "write_file"];

/// Returns a policy in TOML; empty if the config has no rules for tools. The policy is passed as a separate file,
/// because system settings require paths that belong to root, and the settings of the user and the workspace must not
/// be changed.
fn rules(request: &LaunchRequest<'_>) -> String {
    let agent = request.agent;
    let mut rules = String::new();
    if let Some(tools) = &agent.tools.available {
        rules += &rule("*", "deny", 300);
        for tool in tools.iter().filter(|tool| is_allowed_unasked(agent.tools.mode, tool)) {
            rules += &rule(tool, "allow", 400);
        }
    }
    for tool in &agent.tools.allowed {
        rules += &rule(tool, "allow", 500);
    }
    for tool in &agent.tools.denied {
        rules += &rule(tool, "deny", 900);
    }
    rules
}

/// Returns true if the mode allows the tool without asking.
fn is_allowed_unasked(mode: PermissionMode, tool: &str) -> bool {
    let edits = matches!(mode, PermissionMode::AcceptEdits | PermissionMode::Delegate);
    mode == PermissionMode::BypassPermissions
        || READING_TOOLS.contains(&tool)
        || (edits && WRITING_TOOLS.contains(&tool))
}

/// Returns a rule for a tool. For `run_shell_command(git)`, the rule applies only to commands with the prefix `git`.
fn rule(tool: &str, decision: &str, priority: u32) -> String {
    let (tool, beginning) =
        tool.split_once('(').map_or((tool, None), |(tool, rest)| (tool, Some(rest.trim_end_matches(')'))));
    // JSON strings are valid in TOML.
    let beginning = beginning.map(|beginning| format!("commandPrefix = {}\n", json!(beginning)));
    format!(
        "[[rule]]\ntoolName = {}\n{}decision = \"{decision}\"\npriority = {priority}\n\n",
        json!(tool),
        beginning.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::path::Path;

    use cowhand_core::roster::Agent;

    use super::*;

    fn plan_of(settings: &str, session: &SessionChoice) -> CommandLine {
        let agent = Agent::from_config("coder".parse().unwrap(), serde_json::from_str(settings).unwrap());
        let environment = HashMap::new();
        plan(&LaunchRequest { agent: &agent, session, folder: Path::new("/p"), environment: &environment })
    }

    #[test]
    fn arguments_follow_the_settings() {
        for (settings, session, expected) in [
            ("{}", SessionChoice::Fresh, "auto_edit"),
            (r#"{"permission_mode": "plan", "model": "flash"}"#, SessionChoice::Fresh, "plan --model flash"),
            (r#"{"permission_mode": "dontAsk"}"#, SessionChoice::Resume("s".into()), "default --resume s"),
            (
                r#"{"permission_mode": "bypassPermissions"}"#,
                SessionChoice::FreshAs("s".into()),
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
    fn tool_rules_and_system_prompt_are_passed_in_files() {
        let settings = r#"{"tools": ["read_file", "write_file", "run_shell_command"],
            "allowed_tools": ["run_shell_command(git)"], "denied_tools": ["web_fetch"], "system_prompt": "Be brief."}"#;
        let plan = plan_of(settings, &SessionChoice::Fresh);
        assert!(plan.argv.join(" ").ends_with("auto_edit --policy /p/gemini-policy.toml"), "{:?}", plan.argv);
        let variables: Vec<_> =
            plan.environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(variables, ["GEMINI_SYSTEM_MD=/p/system-prompt.md"]);
        let rules = plan.files[0].1.replace("[[rule]]\n", "").replace('\n', " ");
        assert_eq!(
            rules.split("  ").filter(|rule| !rule.is_empty()).collect::<Vec<_>>(),
            [
                r#"toolName = "*" decision = "deny" priority = 300"#,
                r#"toolName = "read_file" decision = "allow" priority = 400"#,
                r#"toolName = "write_file" decision = "allow" priority = 400"#,
                r#"toolName = "run_shell_command" commandPrefix = "git" decision = "allow" priority = 500"#,
                r#"toolName = "web_fetch" decision = "deny" priority = 900"#,
            ]
        );
        assert_eq!(plan.files[1], (PROMPT_FILE.to_owned(), "Be brief.".to_owned()));
    }
}

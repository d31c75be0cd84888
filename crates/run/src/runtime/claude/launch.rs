//! The command line of Claude Code.

use std::path::PathBuf;

use cowhand_core::job::JobUsage;
use cowhand_core::mcp::McpServer;
use cowhand_core::permission::{PermissionMode, Permissions, Rule};
use cowhand_core::runtime::{Plugin, SettingSource};
use indexmap::IndexMap;
use serde_json::{Value, json};
use uuid::Uuid;

use super::super::description::{
    Capabilities, CommandLine, Description, LaunchRequest, ProviderAccess, RuntimePath, no_configuration,
};
use super::super::input::InputFormat;
use super::super::result_line::per_model;
use super::super::{Reader, SessionChoice, session_file};
use super::Claude;
use crate::process::StopSignal;

/// Options of Claude. The prompt is passed on stdin, so it has no length limit and is not visible in a list of
/// processes. Secrets are passed in the environment and in files.
#[derive(Debug, Clone, PartialEq, Default)]
struct ClaudeLaunch {
    model: Option<String>,
    max_turns: Option<u32>,
    permission_mode: Option<String>,
    system_prompt_file: Option<PathBuf>,
    /// Available tools; unset means Claude's default, and an empty list means none.
    tools: Option<Vec<String>>,
    /// Tools that need no permission.
    allowed_tools: Vec<String>,
    /// Tools that are always denied.
    denied_tools: Vec<String>,
    /// Settings files that Claude reads; unset means Claude's default, and an empty list means none.
    setting_sources: Option<Vec<String>>,
    mcp_config_file: Option<PathBuf>,
    /// Settings as JSON.
    settings: Option<String>,
    /// Tool of an MCP server that Claude asks for permission.
    permission_prompt_tool: Option<String>,
    plugins: Vec<Plugin>,
    partial_messages: bool,
    /// Maximum cost in dollars.
    max_budget: Option<f64>,
    session: SessionChoice,
}

/// Options of every start. Messages are passed on stdin too, and Claude repeats each message that it takes.
const ALWAYS: [&str; 7] = [
    "-p",
    "--output-format",
    "stream-json",
    "--verbose",
    "--input-format",
    "stream-json",
    "--replay-user-messages",
];

impl ClaudeLaunch {
    /// Returns the arguments after the program's name.
    fn arguments(&self) -> Vec<String> {
        let some = |list: &Vec<String>| (!list.is_empty()).then(|| list.join(","));
        let options = [
            ("--model", self.model.clone()),
            ("--max-turns", self.max_turns.map(|turns| turns.to_string())),
            ("--max-budget-usd", self.max_budget.map(|dollars| dollars.to_string())),
            ("--permission-mode", self.permission_mode.clone()),
            ("--system-prompt-file", self.system_prompt_file.as_ref().map(|file| file.display().to_string())),
            ("--settings", self.settings.clone()),
            ("--permission-prompt-tool", self.permission_prompt_tool.clone()),
            ("--mcp-config", self.mcp_config_file.as_ref().map(|file| file.display().to_string())),
            ("--tools", self.tools.as_ref().map(|list| list.join(","))),
            ("--allowedTools", some(&self.allowed_tools)),
            ("--disallowedTools", some(&self.denied_tools)),
            ("--setting-sources", self.setting_sources.as_ref().map(|list| list.join(","))),
        ];
        let plugins = self.plugins.iter().map(|plugin| {
            let option = if plugin.skip_mcp_discovery { "--plugin-dir-no-mcp" } else { "--plugin-dir" };
            (option, Some(plugin.path.clone()))
        });
        let options = options.into_iter().chain(plugins);
        let options = options.filter_map(|(name, value)| Some([name.to_owned(), value?])).flatten();
        let always = ALWAYS.map(str::to_owned);
        let partial = self.partial_messages.then(|| "--include-partial-messages".to_owned());
        always.into_iter().chain(options).chain(partial).chain(arguments_of(&self.session)).collect()
    }
}

/// Returns the arguments for a session. Claude accepts a chosen id for a new or forked session, but not for a resumed
/// session.
fn arguments_of(session: &SessionChoice) -> Vec<String> {
    let words: Vec<&str> = match session {
        SessionChoice::Fresh => vec![],
        SessionChoice::FreshAs(id) => vec!["--session-id", id],
        SessionChoice::Resume(id) => vec!["--resume", id],
        SessionChoice::Fork { of, as_id: None } => vec!["--resume", of, "--fork-session"],
        SessionChoice::Fork { of, as_id: Some(id) } => {
            vec!["--resume", of, "--fork-session", "--session-id", id]
        }
    };
    words.into_iter().map(str::to_owned).collect()
}

pub(in super::super) const DESCRIPTION: Description = Description {
    program: Some("claude"),
    oldest: Some([2, 0, 0]),
    capabilities: Capabilities {
        resume: true,
        fork: true,
        cost: true,
        session_id: true,
        asks: true,
        messages: true,
    },
    plan,
    reader: Reader::claude,
    interactive: &["--resume"],
    missing_session_messages: &["No conversation found with session ID: {id}"],
    variable_prefixes: &["ANTHROPIC_", "CLAUDE_"],
    homes: &[
        RuntimePath::folder("CLAUDE_CONFIG_DIR", ".claude"),
        RuntimePath { is_folder: false, ..RuntimePath::folder("", ".claude.json") },
    ],
    provider: Some(|_| ProviderAccess {
        address_variable: "ANTHROPIC_BASE_URL",
        default_address: "https://api.anthropic.com",
        keys: &[
            ("ANTHROPIC_API_KEY", "x-api-key", ""),
            ("ANTHROPIC_AUTH_TOKEN", "authorization", "Bearer "),
            ("CLAUDE_CODE_OAUTH_TOKEN", "authorization", "Bearer "),
        ],
        configure: no_configuration,
    }),
};

const MCP_FILE: &str = "mcp.json";
const PROMPT_FILE: &str = "system-prompt.md";

fn plan(request: &LaunchRequest<'_>) -> CommandLine {
    let agent = request.agent;
    let word = |source: &SettingSource| match source {
        SettingSource::User => "user".to_owned(),
        SettingSource::Project => "project".to_owned(),
        SettingSource::Local => "local".to_owned(),
    };
    let usage_before = usage_before(request);
    let prompt_id = Uuid::now_v7();
    let servers = (!agent.mcp_servers.is_empty()).then(|| mcp(&agent.mcp_servers));
    let asks = agent.tools.mode == PermissionMode::Ask;
    let launch = ClaudeLaunch {
        model: agent.program.model.clone(),
        max_turns: agent.max_turns,
        permission_mode: Some(permission_mode(agent.tools.mode).to_owned()),
        system_prompt_file: agent.system_prompt.as_ref().map(|_| request.file(PROMPT_FILE)),
        tools: agent.tools.available.clone(),
        allowed_tools: agent.tools.allowed.clone(),
        denied_tools: agent.tools.denied.clone(),
        setting_sources: match &agent.claude.setting_sources {
            Some(sources) => Some(sources.iter().map(word).collect()),
            // Settings in the working directory must not allow a tool for which a person has to be asked.
            None => asks.then(|| vec![word(&SettingSource::User)]),
        },
        settings: agent.tools.permissions.as_ref().filter(|_| asks).map(own_rules),
        permission_prompt_tool: asks.then(|| "mcp__cowhand__approve".to_owned()),
        mcp_config_file: servers.as_ref().map(|_| request.file(MCP_FILE)),
        plugins: agent.claude.plugins.clone(),
        partial_messages: agent.claude.partial_messages,
        // Claude compares the limit with the cost of the whole session.
        max_budget: agent
            .budget
            .per_job_usd
            .map(|left| left + usage_before.total_cost_usd.unwrap_or_default()),
        session: request.session.clone(),
    };
    let prompt = agent.system_prompt.clone().map(|prompt| (PROMPT_FILE.to_owned(), prompt));
    // The timeout of the tool call is ten minutes longer than the timeout of the ask.
    let tool_timeout =
        asks.then(|| ("MCP_TOOL_TIMEOUT", (agent.ask_timeout.as_secs() * 1000 + 600_000).to_string()));
    CommandLine {
        argv: std::iter::once("claude".to_owned()).chain(launch.arguments()).collect(),
        // An agent must not update the program that other agents use.
        defaults: [("DISABLE_AUTOUPDATER", "1".to_owned())].into_iter().chain(tool_timeout).collect(),
        environment: Vec::new(),
        files: servers
            .map(|servers| (MCP_FILE.to_owned(), servers.to_string()))
            .into_iter()
            .chain(prompt)
            .collect(),
        // Claude writes its result line after an interrupt.
        stop_signal: StopSignal::Interrupt,
        reader: Reader::Claude(Claude { usage_before, prompt: Some(prompt_id), ..Claude::default() }),
        input: Some(InputFormat::Claude { prompt: prompt_id }),
    }
}

/// Returns the usage so far of the session that is resumed or forked, or no usage for a new session. Claude records the
/// cost of a session when Claude ends, and adds to this cost when the session is resumed. Older versions do neither.
fn usage_before(request: &LaunchRequest<'_>) -> JobUsage {
    let (SessionChoice::Resume(id) | SessionChoice::Fork { of: id, .. }) = request.session else {
        return JobUsage::default();
    };
    let record = session_file::find(
        &request.home("CLAUDE_CONFIG_DIR", ".claude").join("projects"),
        &format!("{id}.jsonl"),
        1,
    );
    let before = record.and_then(|record| {
        session_file::last_value(record, "\"cost-state\"", |line| {
            let (models, cost) = (line.get("modelUsage")?, line.get("totalCostUSD")?.as_f64()?);
            Some(JobUsage { per_model: per_model(models), total_cost_usd: Some(cost), ..JobUsage::default() })
        })
    });
    before.unwrap_or_default()
}

/// Returns permission rules for Claude's own settings. Claude uses some tools without asking, so it has to know which
/// tools are denied and which need an ask.
fn own_rules(permissions: &Permissions) -> String {
    let written = |rules: &Option<Vec<Rule>>| rules.iter().flatten().map(Rule::to_string).collect::<Vec<_>>();
    let rules = json!({ "ask": written(&permissions.ask), "deny": written(&permissions.deny) });
    json!({ "permissions": rules }).to_string()
}

/// Returns the MCP servers. Claude uses the same form as the config.
fn mcp(servers: &IndexMap<String, McpServer>) -> Value {
    json!({ "mcpServers": servers })
}

const fn permission_mode(mode: PermissionMode) -> &'static str {
    match mode {
        // With `Ask`, Claude requests permission through the tool of `--permission-prompt-tool`.
        PermissionMode::Default | PermissionMode::Ask => "default",
        PermissionMode::AcceptEdits => "acceptEdits",
        PermissionMode::BypassPermissions => "bypassPermissions",
        PermissionMode::Plan => "plan",
        PermissionMode::Delegate => "delegate",
        PermissionMode::DontAsk => "dontAsk",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_follow_the_settings() {
        let words = |words: &str| words.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let plain = ClaudeLaunch::default;
        for (launch, expected) in [
            (plain(), ""),
            (ClaudeLaunch { model: Some("opus".into()), ..plain() }, " --model opus"),
            (ClaudeLaunch { max_turns: Some(5), ..plain() }, " --max-turns 5"),
            (
                ClaudeLaunch { permission_mode: Some("acceptEdits".into()), ..plain() },
                " --permission-mode acceptEdits",
            ),
            (ClaudeLaunch { tools: Some(words("Bash Read")), ..plain() }, " --tools Bash,Read"),
            (ClaudeLaunch { tools: Some(vec![]), ..plain() }, " --tools "),
            (
                ClaudeLaunch {
                    allowed_tools: words("Bash(git:*) Edit"),
                    denied_tools: words("WebFetch"),
                    ..plain()
                },
                " --allowedTools Bash(git:*),Edit --disallowedTools WebFetch",
            ),
            (
                ClaudeLaunch { setting_sources: Some(words("user project")), ..plain() },
                " --setting-sources user,project",
            ),
            (ClaudeLaunch { setting_sources: Some(vec![]), ..plain() }, " --setting-sources "),
            (ClaudeLaunch { mcp_config_file: Some("mcp.json".into()), ..plain() }, " --mcp-config mcp.json"),
            (
                ClaudeLaunch {
                    plugins: vec![
                        Plugin { path: "a".into(), skip_mcp_discovery: false },
                        Plugin { path: "b".into(), skip_mcp_discovery: true },
                    ],
                    ..plain()
                },
                " --plugin-dir a --plugin-dir-no-mcp b",
            ),
            (ClaudeLaunch { partial_messages: true, ..plain() }, " --include-partial-messages"),
            (ClaudeLaunch { session: SessionChoice::FreshAs("id".into()), ..plain() }, " --session-id id"),
            (ClaudeLaunch { session: SessionChoice::Resume("id".into()), ..plain() }, " --resume id"),
            (
                ClaudeLaunch { session: SessionChoice::Fork { of: "id".into(), as_id: None }, ..plain() },
                " --resume id --fork-session",
            ),
            (
                ClaudeLaunch {
                    session: SessionChoice::Fork { of: "id".into(), as_id: Some("new".into()) },
                    ..plain()
                },
                " --resume id --fork-session --session-id new",
            ),
        ] {
            let expected = format!("{}{expected}", ALWAYS.join(" "));
            assert_eq!(launch.arguments(), words(&expected), "{launch:?}");
        }
        let prompted = ClaudeLaunch { system_prompt_file: Some("/p/a b.md".into()), ..plain() };
        assert_eq!(prompted.arguments().last().unwrap(), "/p/a b.md");
    }
}

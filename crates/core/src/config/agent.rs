//! The resolved form of an agent: its merged keys, typed, with defaults applied.

use std::time::Duration;

use indexmap::IndexMap;

use super::{chat, herdctl};
use crate::ask::ASK_TIMEOUT;
use crate::hook::{
    HOOK_RETRIES, Hook, HookAction, Hooks, SHELL_HOOK_TIMEOUT, SLACK_TOKEN_VARIABLE, WEBHOOK_TIMEOUT,
};
use crate::id::AgentName;
use crate::interval::Interval;
use crate::mcp::{McpServer, McpTransport};
use crate::permission::ToolAccess;
use crate::policy::Timeout;
use crate::roster::{Agent, MAX_CONCURRENT_JOBS, METADATA_FILE, Program};
use crate::runtime::{ClaudeSettings, Plugin};
use crate::sandbox::Sandbox;
use crate::session::{SESSION_EXPIRES_AFTER, Session, expiry};
use crate::shape::{
    AgentConfig, Fallback, HookActionConfig, HookConfig, HooksConfig, McpServerConfig, PluginConfig,
    SessionConfig,
};
use crate::workspace::Isolation;

impl Agent {
    /// Creates an agent from its keys, without its schedules and in the directory `.`.
    pub fn from_config(name: AgentName, config: AgentConfig) -> Self {
        let inherited = config.inherited;
        let program = Program {
            runtime: config.runtime.map(Into::into).unwrap_or_default(),
            command: config.command.unwrap_or_default(),
            model: inherited.model,
            provider: config.provider,
            env: config.env,
        };
        let docker = inherited.docker.unwrap_or_default();
        let written_session = inherited.session.unwrap_or_default();
        Self {
            display_name: config.identity.and_then(|own| own.name).unwrap_or_else(|| name.to_string()),
            description: config.description,
            isolation: inherited.isolation.as_ref().map(Isolation::rules).unwrap_or_default(),
            fallbacks: config.fallback.into_iter().map(|other| fallback(&program, other)).collect(),
            program,
            pass_env: inherited.pass_env.unwrap_or_default(),
            system_prompt: config.system_prompt,
            default_prompt: config.default_prompt,
            max_turns: inherited.max_turns.or(written_session.max_turns),
            session: session(&written_session),
            tools: ToolAccess {
                mode: inherited.permission_mode.unwrap_or_default(),
                permissions: inherited.permissions,
                available: inherited.tools.filter(|tools| !tools.is_empty()),
                allowed: inherited.allowed_tools.unwrap_or_default(),
                denied: inherited.denied_tools.unwrap_or_default(),
            },
            ask_timeout: inherited.ask_timeout.map_or(ASK_TIMEOUT, Interval::duration),
            fleet_tools: config.fleet_tools.unwrap_or(false),
            mcp_servers: inherited
                .mcp_servers
                .unwrap_or_default()
                .into_iter()
                .map(|(name, server)| (name, server.into()))
                .collect::<IndexMap<_, McpServer>>(),
            claude: ClaudeSettings {
                plugins: inherited.plugins.into_iter().flatten().map(Plugin::from).collect(),
                setting_sources: config.setting_sources,
                partial_messages: inherited.partial_messages.unwrap_or(false),
            },
            sandbox_rules: inherited.sandbox.as_ref().map(Sandbox::rules),
            container: herdctl::sandbox(&docker),
            container_env: docker.env.unwrap_or_default(),
            work_source: inherited.work_source.map(Into::into),
            hooks: config.hooks.map(Hooks::from).unwrap_or_default(),
            metadata_file: config.metadata_file.unwrap_or_else(|| METADATA_FILE.to_owned()),
            followups: config.followups,
            trust: inherited.trust,
            max_concurrent: inherited
                .instances
                .and_then(|instances| instances.max_concurrent)
                .unwrap_or(MAX_CONCURRENT_JOBS),
            runs_on: inherited
                .runs_on
                .iter()
                .flatten()
                // Labels with errors are already reported.
                .filter_map(|label| label.parse().ok())
                .collect(),
            retry: inherited.retry.unwrap_or_default(),
            timeout: inherited.timeout.unwrap_or(Timeout::ATTEMPT),
            idle_timeout: inherited.idle_timeout.unwrap_or(Timeout::IDLE),
            on_lost_lease: inherited.on_lost_lease.unwrap_or_default(),
            retention: inherited.retention.unwrap_or_default(),
            budget: inherited.budget.unwrap_or_default(),
            notify: inherited.notify.unwrap_or_default(),
            chat: config.chat.and_then(chat::settings),
            ..Self::new(name)
        }
    }
}

/// Returns the program of a fallback. If the fallback has another runtime, the agent's model and provider do not apply.
fn fallback(own: &Program, other: Fallback) -> Program {
    let runtime = other.runtime.map_or(own.runtime, Into::into);
    let kept = (runtime == own.runtime).then_some(own);
    Program {
        runtime,
        command: other.command.unwrap_or_else(|| own.command.clone()),
        model: other.model.or_else(|| kept?.model.clone()),
        provider: other.provider.or_else(|| kept?.provider.clone()),
        env: own.env.clone().into_iter().chain(other.env).collect(),
    }
}

fn session(config: &SessionConfig) -> Session {
    Session {
        policy: config.policy.unwrap_or_default(),
        expires: config.expires.as_deref().and_then(expiry).unwrap_or(SESSION_EXPIRES_AFTER),
    }
}

impl From<McpServerConfig> for McpServer {
    fn from(config: McpServerConfig) -> Self {
        let by_url = if config.url.is_some() { McpTransport::Http } else { McpTransport::Stdio };
        Self {
            transport: config.transport.unwrap_or(by_url),
            command: config.command,
            args: config.args.unwrap_or_default(),
            env: config.env.unwrap_or_default(),
            url: config.url,
            headers: config.headers.unwrap_or_default(),
            timeout: config.timeout,
            always_load: config.always_load,
        }
    }
}

impl From<PluginConfig> for Plugin {
    fn from(config: PluginConfig) -> Self {
        match config {
            PluginConfig::Path(path) => Self { path, skip_mcp_discovery: false },
            PluginConfig::Local { kind: _, path, skip_mcp_discovery } => {
                Self { path, skip_mcp_discovery: skip_mcp_discovery.unwrap_or(false) }
            }
        }
    }
}

impl From<HooksConfig> for Hooks {
    fn from(config: HooksConfig) -> Self {
        let all = |hooks: Vec<HookConfig>| hooks.into_iter().map(Hook::from).collect();
        Self { after_run: all(config.after_run), on_error: all(config.on_error) }
    }
}

impl From<HookConfig> for Hook {
    fn from(config: HookConfig) -> Self {
        Self {
            name: config.name,
            continue_on_error: config.continue_on_error.unwrap_or(true),
            on_events: config.on_events,
            when: config.when,
            action: config.action.into(),
        }
    }
}

impl From<HookActionConfig> for HookAction {
    fn from(config: HookActionConfig) -> Self {
        match config {
            HookActionConfig::Shell { command, timeout } => {
                Self::Shell { command, timeout: timeout.map_or(SHELL_HOOK_TIMEOUT, Duration::from_millis) }
            }
            HookActionConfig::Webhook {
                url,
                method,
                headers,
                timeout,
                secret,
                secret_env,
                retries,
                allow_private,
            } => Self::Webhook {
                url,
                method: method.unwrap_or_default(),
                headers: headers.unwrap_or_default(),
                timeout: timeout.map_or(WEBHOOK_TIMEOUT, Duration::from_millis),
                secret,
                secret_env,
                retries: retries.unwrap_or(HOOK_RETRIES),
                allow_private: allow_private.unwrap_or(false),
            },
            HookActionConfig::Discord { channel_id, bot_token_env } => {
                Self::Discord { channel_id, bot_token_env }
            }
            HookActionConfig::Slack { channel_id, bot_token_env } => Self::Slack {
                channel_id,
                bot_token_env: bot_token_env.unwrap_or_else(|| SLACK_TOKEN_VARIABLE.to_owned()),
            },
        }
    }
}

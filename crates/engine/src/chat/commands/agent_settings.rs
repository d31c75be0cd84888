//! `config` and `tools`: the settings of the agent.

use cowhand_core::budget::tokens_in_words;
use cowhand_core::chat::ChatPlatform;
use cowhand_core::chat::escape::inline_code;
use cowhand_core::duration;
use cowhand_core::permission::PermissionMode;
use serde_json::Value;

use super::UsedCommand;

impl UsedCommand<'_> {
    /// Shows runtime, model and limits.
    pub(super) fn config(&self) -> String {
        let (agent, platform) = (&self.addressee.agent, self.platform());
        let code = |text: &str| inline_code(text, platform);
        let model = agent.program.model.as_deref().map_or("chosen by the runtime".to_owned(), code);
        let mut lines = vec![
            format!("Agent: {}", code(agent.name.as_str())),
            format!("Runtime: {}", code(agent.runtime().name())),
            format!("Model: {model}"),
            format!("Directory: {}", code(&self.directory())),
            format!("Permission mode: {}", code(&mode_name(agent.tools.mode))),
            format!("Jobs at a time: {}", agent.max_concurrent),
        ];
        lines.extend(agent.max_turns.map(|turns| format!("Turns of a job: at most {turns}")));
        let timeout = agent.timeout.duration();
        lines.extend(timeout.map(|limit| format!("Time of an attempt: at most {}", duration::exact(limit))));
        lines.extend(self.budget_lines());
        let expires = duration::exact(self.addressee.chat.session_expires);
        lines.push(format!("A session expires {expires} after its last message."));
        lines.join("\n")
    }

    /// Returns the directory of the agent relative to the folder of the fleet. A chat shows no folders above it.
    fn directory(&self) -> String {
        let directory = &self.addressee.agent.directory;
        match directory.strip_prefix(self.context().fleet_folder()) {
            Ok(below) if below.as_os_str().is_empty() => ".".to_owned(),
            Ok(below) => below.display().to_string(),
            Err(_) => {
                directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
            }
        }
    }

    /// Returns the spend limits of the agent.
    fn budget_lines(&self) -> Vec<String> {
        let budget = &self.addressee.agent.budget;
        let of = |window: &str, usd: Option<f64>, tokens: Option<u64>| {
            let usd = usd.map(|usd| format!("${usd:.2}"));
            let amounts: Vec<String> = usd.into_iter().chain(tokens.map(tokens_in_words)).collect();
            (!amounts.is_empty()).then(|| format!("Budget of a {window}: {}", amounts.join(", ")))
        };
        [
            of("job", budget.per_job_usd, budget.per_job_tokens),
            of("day", budget.per_day_usd, budget.per_day_tokens),
            of("month", budget.per_month_usd, budget.per_month_tokens),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Shows the tools that the agent may use.
    pub(super) fn tools(&self) -> String {
        let (agent, platform) = (&self.addressee.agent, self.platform());
        let tools = &agent.tools;
        let mut lines = vec![format!("Permission mode: {}", inline_code(&mode_name(tools.mode), platform))];
        lines.push(match &tools.available {
            None => "Tools: all that the runtime has".to_owned(),
            Some(available) => format!("Tools: {}", list(available, platform)),
        });
        lines.push(format!("Allowed without asking: {}", list(&tools.allowed, platform)));
        lines.push(format!("Denied: {}", list(&tools.denied, platform)));
        if let Some(permissions) = &tools.permissions {
            for (what, rules) in
                [("allow", &permissions.allow), ("ask", &permissions.ask), ("deny", &permissions.deny)]
            {
                let rules: Vec<String> = rules.iter().flatten().map(ToString::to_string).collect();
                lines.push(format!("Rules that {what}: {}", list(&rules, platform)));
            }
        }
        let servers: Vec<String> = agent.mcp_servers.keys().cloned().collect();
        lines.push(format!("MCP servers: {}", list(&servers, platform)));
        lines.join("\n")
    }
}

fn list(names: &[String], platform: ChatPlatform) -> String {
    let names: Vec<String> = names.iter().map(|name| inline_code(name, platform)).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Returns the mode as it is written in the config.
fn mode_name(mode: PermissionMode) -> String {
    match serde_json::to_value(mode) {
        Ok(Value::String(name)) => name,
        _ => format!("{mode:?}"),
    }
}

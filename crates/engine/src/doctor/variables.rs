//! Checks for variables that programs often need and that an agent does not get.

use cowhand_core::roster::{Agent, Roster};
use cowhand_core::sandbox::SandboxKind;

use super::Finding;
use cowhand_run::launch;

/// Variables that many programs read: tokens, keys of providers, and paths.
const WELL_KNOWN: [&str; 24] = [
    "GITHUB_TOKEN",
    "GH_TOKEN",
    "GITLAB_TOKEN",
    "NPM_TOKEN",
    "CARGO_REGISTRY_TOKEN",
    "PYPI_TOKEN",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_PROFILE",
    "AZURE_CLIENT_SECRET",
    "DATABASE_URL",
    "DEEPSEEK_API_KEY",
    "DOCKER_HOST",
    "GIT_SSH_COMMAND",
    "GROQ_API_KEY",
    "HF_TOKEN",
    "KUBECONFIG",
    "LINEAR_API_KEY",
    "MISTRAL_API_KEY",
    "OPENROUTER_API_KEY",
    "SLACK_BOT_TOKEN",
    "SSH_AUTH_SOCK",
    "XAI_API_KEY",
];

/// Returns a finding with the well-known variables that are set and that agents do not get; `None` if there are none.
/// `is_set` reads the daemon's environment.
pub(super) fn check(roster: &Roster, is_set: impl Fn(&str) -> bool) -> Option<Finding> {
    // The daemon itself uses the tokens of chat bots. No agent should get them.
    let of_bots = roster.chat_variables();
    let is_for_agents = |name: &&str| is_set(name) && !of_bots.contains(name);
    let set_variables: Vec<&str> = WELL_KNOWN.into_iter().filter(is_for_agents).collect();
    let mut missing = Vec::new();
    for name in set_variables {
        let agents: Vec<&str> = roster
            .agents
            .iter()
            .filter(|agent| !gets(agent, name))
            .map(|agent| agent.name.as_str())
            .collect();
        if agents.len() == roster.agents.len() {
            missing.push(format!("{name} (no agent gets it)"));
        } else if !agents.is_empty() {
            missing.push(format!("{name} (not passed to {})", agents.join(", ")));
        }
    }
    let advice = "an agent gets a variable that its `pass_env` or `env` names";
    (!missing.is_empty()).then(|| Finding::works("environment", format!("{}; {advice}", missing.join(", "))))
}

fn gets(agent: &Agent, name: &str) -> bool {
    let sandboxed = agent.sandbox(None, false).kind != SandboxKind::None;
    agent.program.env.contains_key(name) || launch::is_passed_on(agent, sandboxed, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn existing_variables_that_are_not_passed_are_named() {
        let agent = |name: &str, config: serde_json::Value| {
            Agent::from_config(name.parse().unwrap(), serde_json::from_value(config).unwrap())
        };
        let plain = agent("plain", serde_json::json!({}));
        let passes =
            agent("passes", serde_json::json!({"pass_env": ["GH_TOKEN"], "env": {"GITHUB_TOKEN": "x"}}));
        let detail = |agents: Vec<Agent>| {
            let roster = Roster { agents: agents.into(), ..Roster::default() };
            let is_set = |name: &str| ["GITHUB_TOKEN", "GH_TOKEN", "KUBECONFIG"].contains(&name);
            check(&roster, is_set).map(|finding| finding.detail)
        };
        let advice = "an agent gets a variable that its `pass_env` or `env` names";
        assert_eq!(
            detail(vec![plain.clone(), passes]).unwrap(),
            format!(
                "GITHUB_TOKEN (not passed to plain), GH_TOKEN (not passed to plain), KUBECONFIG (no agent gets it); {advice}"
            )
        );
        let of_herdctl = Agent { inherits_environment: true, ..plain };
        assert_eq!(detail(vec![of_herdctl]), None);
    }
}

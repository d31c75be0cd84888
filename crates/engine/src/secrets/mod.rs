//! The secrets of a fleet, which are masked in everything that is stored or shown.

pub(crate) mod kept;
pub mod named;
pub mod process;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use cowhand_core::config::{LoadedConfig, looks_secret, passwords};
use cowhand_core::hook::{Hook, HookAction};
use cowhand_core::notification::{NotificationTarget, TargetAction};
use cowhand_core::roster::{Agent, Roster};
use cowhand_core::trigger::TriggerKind;

use crate::collector_headers::header_values;
use crate::loaded::Loaded;
use crate::state::StateFolder;
use cowhand_run::redact::Redactor;
use cowhand_work::SourceContext;

/// Returns the redactor for all secrets of the fleet, whichever agent uses them:
///
/// - values of variables that the config names as secrets, or that have a secret name
/// - passwords in addresses, in variables and in the config
/// - keys that sign deliveries
/// - headers and secrets of MCP servers, hooks and the trace collector, in variables and in the config
///
/// `agent` is an additional agent, which need not be in the config.
pub(crate) fn redactor_over(loaded: &Loaded, agent: Option<&Agent>) -> Redactor {
    let known = Redactor::clone(&redactor(loaded));
    // Only the secrets of `agent` are searched for here. The cost of a job must not depend on the number of agents, and
    // finding the secrets of all agents is expensive.
    known.with_secrets(secrets_of(agent))
}

/// Returns the redactor for all agents of the config. It is made at its first use.
pub fn redactor(loaded: &Loaded) -> Arc<Redactor> {
    let Loaded { roster, variables, sources, named, earlier_secrets: earlier, .. } = loaded;
    let inputs = SecretInputs { roster, variables, context: sources.context(), named, earlier };
    Arc::clone(loaded.redactor.get_or_init(|| Arc::new(redactor_of(&inputs))))
}

/// Returns the redactor for a fleet without a running daemon. Its agents may still run, so the redactor also masks the
/// secrets with which they were started.
#[expect(clippy::implicit_hasher, reason = "the variables come from one place, which uses the default")]
pub fn redactor_without_daemon(
    loaded: &LoadedConfig,
    variables: &HashMap<String, String>,
    context: &SourceContext,
    state: &StateFolder,
) -> Redactor {
    let roster = &loaded.roster;
    let (named, earlier) = (named::variables(roster, Some(&loaded.shown)), kept::of_attempts(state));
    redactor_of(&SecretInputs { roster, variables, context, named: &named, earlier: &earlier })
}

/// Makes the secrets of a config known to this process, even if the config has errors. Returns the names of the
/// variables that the config names as secrets.
pub(crate) fn remember_config(loaded: &LoadedConfig, variables: &HashMap<String, String>) -> Vec<String> {
    let (roster, context) = (&loaded.roster, SourceContext::of_base(Path::new(""), variables.clone()));
    let named = named::variables(roster, Some(&loaded.shown));
    let inputs = SecretInputs { roster, variables, context: &context, named: &named, earlier: &[] };
    process::remember(&redactor_of(&inputs));
    named
}

/// The values that contain or name the secrets of a fleet.
struct SecretInputs<'a> {
    roster: &'a Roster,
    variables: &'a HashMap<String, String>,
    context: &'a SourceContext,
    /// Names of the variables that the config names as secrets.
    named: &'a [String],
    /// Values that were secrets earlier.
    earlier: &'a [String],
}

/// Returns the variables of this process.
fn own_variables() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

fn redactor_of(fleet: &SecretInputs<'_>) -> Redactor {
    let variables = own_variables().chain(fleet.variables.clone());
    let variables = variables.flat_map(|(name, value)| in_variable(&name, value));
    let named = fleet.named.iter().filter_map(|name| fleet.context.variable(name));
    let store = fleet.roster.store.as_deref().map(passwords).unwrap_or_default();
    let traces = fleet.roster.traces.iter().flat_map(|traces| traces.headers.values());
    let traces = traces.flat_map(|value| value_and_words(value));
    let targets = fleet.roster.notifications.targets.values().flat_map(of_target);
    let in_urls = fleet.roster.url_passwords.iter().cloned();
    let configured = variables
        .chain(secrets_of(&fleet.roster.agents))
        .chain(named)
        .chain(store)
        .chain(traces)
        .chain(targets);
    Redactor::of(configured.chain(in_urls).chain(fleet.earlier.iter().cloned()).collect())
}

/// Returns the secrets of agents: the secrets in their variables, the keys that sign deliveries to their schedules, and
/// the secrets that they send to their MCP servers and hooks.
fn secrets_of<'a>(agents: impl IntoIterator<Item = &'a Agent>) -> Vec<String> {
    agents.into_iter().flat_map(secrets_of_agent).collect()
}

fn secrets_of_agent(agent: &Agent) -> Vec<String> {
    let variables = variables_of(agent).into_iter().flat_map(|(name, value)| in_variable(&name, value));
    let schedules = agent.schedules.iter();
    let of_schedules = schedules.filter_map(|schedule| match schedule.trigger.kind() {
        TriggerKind::Webhook { secret, .. } => secret.map(str::to_owned),
        TriggerKind::Clock(_)
        | TriggerKind::Hand
        | TriggerKind::Chat
        | TriggerKind::Event(_)
        | TriggerKind::Github { .. }
        | TriggerKind::Tasks { .. } => None,
    });
    variables.chain(secrets_sent_by(agent)).chain(of_schedules).collect()
}

/// Returns the secrets in a variable: its whole value if it has a secret name, the password of an address, and the
/// headers for the trace collector.
fn in_variable(name: &str, value: String) -> Vec<String> {
    let headers = header_values(name, &value);
    let headers = headers.iter().flat_map(|value| value_and_words(value));
    // The address of a proxy needs no scheme.
    let is_proxy = name.to_ascii_lowercase().ends_with("_proxy") && !value.contains("://");
    let proxy = is_proxy.then(|| format!("http://{value}"));
    let in_address = passwords(proxy.as_deref().unwrap_or(&value));
    let mut secrets: Vec<String> = headers.chain(in_address).collect();
    secrets.extend(looks_secret(name).then_some(value));
    secrets
}

/// Returns the variables of an agent, of its container, of its fallbacks and of its MCP servers.
fn variables_of(agent: &Agent) -> Vec<(String, String)> {
    let container = agent.container_env.clone();
    let others = agent.fallbacks.iter().flat_map(|other| other.env.clone());
    let servers = agent.mcp_servers.values().flat_map(|server| server.env.clone());
    agent.program.env.clone().into_iter().chain(container).chain(others).chain(servers).collect()
}

/// Returns the secrets that an agent sends to its MCP servers and hooks.
fn secrets_sent_by(agent: &Agent) -> Vec<String> {
    let headers = agent.mcp_servers.values().flat_map(|server| server.headers.values());
    let headers = headers.flat_map(|value| value_and_words(value));
    let urls = agent.mcp_servers.values().filter_map(|server| server.url.as_deref());
    let headers = headers.chain(urls.flat_map(passwords));
    headers.chain(agent.hooks.all().flat_map(|(_, hook)| of_hook(hook))).collect()
}

pub fn of_hook(hook: &Hook) -> Vec<String> {
    match &hook.action {
        HookAction::Webhook { url, headers, secret, .. } => {
            let values = headers.values().chain(secret).flat_map(|value| value_and_words(value));
            values.chain(passwords(url)).collect()
        }
        HookAction::Shell { .. } | HookAction::Discord { .. } | HookAction::Slack { .. } => Vec::new(),
    }
}

/// Returns the secrets that notifications send to a target.
pub fn of_target(target: &NotificationTarget) -> Vec<String> {
    match &target.action {
        TargetAction::Webhook { url, headers, secret, .. } => {
            let values = headers.values().chain(secret).flat_map(|value| value_and_words(value));
            values.chain(passwords(url)).collect()
        }
        TargetAction::Slack { .. }
        | TargetAction::Discord { .. }
        | TargetAction::Email { .. }
        | TargetAction::Command { .. } => Vec::new(),
    }
}

/// Returns a value and its words after the first, because `abc` of `Bearer abc` can appear alone.
fn value_and_words(value: &str) -> impl Iterator<Item = String> {
    [value].into_iter().chain(value.split_whitespace().skip(1)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_found_in_variables_without_a_secret_name() {
        for (name, value, expected) in [
            (
                "OTEL_EXPORTER_OTLP_HEADERS",
                "x-a=first-one, authorization=Bearer%20the-second",
                &["first-one", "Bearer the-second", "the-second", "Bearer%20the-second"][..],
            ),
            ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "a=b=c", &["b=c"]),
            ("OTEL_RESOURCE_ATTRIBUTES", "a=first-one", &[]),
            ("HTTPS_PROXY", "me:hunter22@proxy:3128", &["hunter22"]),
            ("http_proxy", "http://me:hunter22@proxy:3128", &["hunter22"]),
            ("NO_PROXY", "localhost,.example.org", &[]),
            ("NOTE", "me:hunter22@proxy:3128", &[]),
            ("API_TOKEN", "value-1", &["value-1"]),
            ("PLACE", "http://me:hunter%2F22@host", &["hunter%2F22", "hunter/22"]),
            ("PLACE", "http://me:hunter/22@host", &["hunter/22"]),
            ("PLACE", "postgres://host/x?password=hunter%2F22", &["hunter%2F22", "hunter/22"]),
        ] {
            let mut found = in_variable(name, value.to_owned());
            let mut expected = expected.to_vec();
            found.sort();
            found.dedup();
            expected.sort_unstable();
            assert_eq!(found, expected, "{name}={value}");
        }
    }

    /// `config` is read by the loader, so that every key is covered.
    #[test]
    fn passwords_in_addresses_of_the_config_are_masked() {
        let folder = tempfile::TempDir::new().unwrap();
        let file = folder.path().join("cowhand.yaml");
        let config = r#"
agents:
  - name: a
    runtime: command
    command: [sh, -c, "curl 'https://me:pass-in-command@host/x'"]
    system_prompt: "See https://me:pass-in-first@host, or https://me:pass-in-second@other."
    mcp_servers:
      one: {command: one, args: ["--db", "postgres://me:pass-in-argument@db/x"], env: {PLACE: "https://me:pass-in-env@host/"}}
      two: {url: "https://me:pass-in-mcp-url@host/"}
    hooks: {after_run: [{type: webhook, url: "https://me:pass-in-hook-url@host/"}]}
    work_source: {type: github, repo: o/r, api_url: "https://me:pass-in-api-url@host"}
    schedules:
      s: {type: interval, interval: 1h, prompt: "Look at ${PLACE_OF_TEST:-https://me:pass-in-default@host/}."}
"#;
        std::fs::write(&file, config).unwrap();
        let loaded = crate::config::load(&file).loaded;
        let roster = &loaded.roster;
        let context = SourceContext::of_base(folder.path(), HashMap::new());
        let places =
            SecretInputs { roster, variables: &HashMap::new(), context: &context, named: &[], earlier: &[] };
        let masked = redactor_of(&places).redact(config).into_owned();
        assert_eq!(loaded.errors(), 0, "{:?}", loaded.problems);
        assert_eq!(config.matches("pass-in-").count(), 9);
        assert!(!masked.contains("pass-in-"), "{masked}");
        assert!(masked.contains("https://me:***@host/x"), "{masked}");
    }
}

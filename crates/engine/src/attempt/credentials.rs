//! Credentials of providers that stay outside the sandbox: the agent does not get the key; the proxy of its sandbox
//! adds the key.

use std::collections::HashMap;

use cowhand_core::roster::Agent;
use cowhand_core::runtime::Runtime;

use cowhand_run::runtime::description::{self, ProxySettings};
use cowhand_run::sandbox::proxy::{self, ProxyCredentials};

/// Value that replaces a key. Programs require some key before they send a request.
const WITHHELD: &str = "withheld-by-cowhand";
/// Variables that are removed for each agent with `credentials: outside`, whichever key it uses, in addition to the key
/// variables of all runtimes.
const KEYS: [&str; 8] = [
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "OPENAI_API_KEY",
    "CODEX_API_KEY",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "OPENCODE_API_KEY",
];

/// Why the key of a provider cannot stay outside of the sandbox. The message is for people.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CredentialsError {
    #[error(
        "`credentials: outside` is not supported for `runtime: {0}`: cowhand does not know how to set the address \
         of its provider"
    )]
    Unsupported(&'static str),
    #[error(
        "`credentials: outside` needs {variable}; set it to the address of the provider of {model}, in the \
         environment of the daemon, in .env or in `env`"
    )]
    NoAddress { variable: &'static str, model: String },
    #[error(
        "`credentials: outside` needs {variables}; set it in the environment of the daemon, in .env or in `env`"
    )]
    NoKey { variables: String },
}

/// Removes the keys of providers from the environment, and directs the program to the proxy. Returns the key and the
/// address of the provider for the proxy.
pub(crate) fn withhold_key(
    agent: &Agent,
    argv: &mut Vec<String>,
    environment: &mut HashMap<String, String>,
) -> Result<ProxyCredentials, CredentialsError> {
    let runtime = agent.runtime();
    // Of the programs that `runtime: acp` runs, cowhand can set the provider's address only for Gemini, which reads it
    // from a variable.
    let program = Some(agent.program.known_runtime()).filter(|program| *program == Runtime::Gemini);
    let provider = description::description(program.unwrap_or(runtime))
        .provider
        .ok_or_else(|| CredentialsError::Unsupported(runtime.name()))?(agent);
    let non_empty = |name: &str| environment.get(name).filter(|value| !value.is_empty()).cloned();
    let provider_address =
        non_empty(provider.address_variable).unwrap_or_else(|| provider.default_address.to_owned());
    if provider_address.is_empty() {
        let model = agent.program.model.as_deref().unwrap_or("its model").to_owned();
        return Err(CredentialsError::NoAddress { variable: provider.address_variable, model });
    }
    let key = provider.keys.iter().find_map(|(variable, header, prefix)| {
        let value = format!("{prefix}{}", non_empty(variable)?);
        Some((
            *variable,
            ProxyCredentials {
                provider_address: provider_address.clone(),
                header: (*header).to_owned(),
                value,
            },
        ))
    });
    let (key_variable, credentials) = key.ok_or_else(|| {
        let variables = provider.keys.iter().map(|(variable, ..)| *variable).collect::<Vec<_>>().join(" or ");
        CredentialsError::NoKey { variables }
    })?;
    let key_variables = description::key_variables(agent);
    environment.retain(|name, _| !KEYS.contains(&name.as_str()) && !key_variables.contains(&name.as_str()));
    let proxy_url = format!("http://{}", proxy::PROXY_ADDRESS);
    environment.insert(key_variable.to_owned(), WITHHELD.to_owned());
    environment.insert(provider.address_variable.to_owned(), proxy_url.clone());
    (provider.configure)(&mut ProxySettings {
        agent,
        argv,
        environment,
        proxy_address: &proxy_url,
        key_variable,
    });
    Ok(credentials)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cowhand_run::launch;

    /// Returns two texts for an agent with these settings: the provider's address with the header of the key, and argv
    /// with the environment.
    fn withheld_from(
        settings: &str,
        variables: &[(&str, &str)],
    ) -> Result<(String, String), CredentialsError> {
        let agent = Agent::from_config("coder".parse().unwrap(), serde_json::from_str(settings).unwrap());
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let mut environment: HashMap<String, String> = variables.collect();
        let mut argv = vec!["program".to_owned(), "exec".to_owned(), "-".to_owned()];
        let credentials = withhold_key(&agent, &mut argv, &mut environment)?;
        assert!(!format!("{credentials:?}").contains("canary"), "{credentials:?}");
        let provider =
            format!("{} {}: {}", credentials.provider_address, credentials.header, credentials.value);
        let mut inside: Vec<_> =
            environment.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        inside.sort_unstable();
        Ok((provider, format!("{} {}", argv.join(" "), inside.join(" "))))
    }

    #[test]
    fn keys_stay_outside() {
        let keys = [
            ("ANTHROPIC_AUTH_TOKEN", "canary-a"),
            ("OPENAI_API_KEY", "canary-o"),
            ("GEMINI_API_KEY", "canary-g"),
            ("OPENAI_BASE_URL", "http://o/v1"),
            ("HOME", "/h"),
        ];
        for (settings, expected_provider, expected_inside) in [
            (
                r#"{"runtime": "claude"}"#,
                "https://api.anthropic.com authorization: Bearer canary-a",
                "ANTHROPIC_BASE_URL=http://127.0.0.1:3128",
            ),
            (
                r#"{"runtime": "acp", "command": ["/opt/gemini", "--acp"]}"#,
                "https://generativelanguage.googleapis.com x-goog-api-key: canary-g",
                "GOOGLE_GEMINI_BASE_URL=http://127.0.0.1:3128",
            ),
            (
                r#"{"runtime": "codex"}"#,
                "http://o/v1 authorization: Bearer canary-o",
                r#"program exec -c model_providers.cowhand.name="cowhand" -c model_providers.cowhand.base_url="http://127.0.0.1:3128" -c model_providers.cowhand.env_key="OPENAI_API_KEY" -c model_providers.cowhand.wire_api="responses" -c model_provider="cowhand" - "#,
            ),
            (
                r#"{"runtime": "opencode", "model": "own/m"}"#,
                "http://o/v1 authorization: Bearer canary-o",
                r#"{"provider":{"own":{"options":{"baseURL":"http://127.0.0.1:3128","apiKey":"withheld-by-cowhand"}}}}"#,
            ),
        ] {
            let (provider, passed) = withheld_from(settings, &keys).unwrap();
            assert_eq!(provider, expected_provider, "{settings}");
            assert!(passed.contains(expected_inside) && passed.contains("HOME=/h"), "{settings}: {passed}");
            assert!(!passed.contains("canary"), "{settings}: {passed}");
        }
    }

    #[test]
    fn key_variables_of_all_runtimes_are_inherited_and_removed() {
        for model in ["anthropic/m", "openai/m"] {
            let config = serde_json::from_value(serde_json::json!({ "model": model })).unwrap();
            let agent = Agent::from_config("coder".parse().unwrap(), config);
            let variables = description::key_variables(&agent);
            assert!(variables.contains(&"OPENAI_API_KEY"), "{variables:?}");
            for variable in variables {
                // A sandboxed agent inherits only the variables that every agent gets.
                assert!(launch::is_passed_on(&agent, true, variable), "{variable}");
                let keys = [("ANTHROPIC_API_KEY", "canary-a"), (variable, "canary-b")];
                let (_, passed) = withheld_from(r#"{"runtime": "claude"}"#, &keys).unwrap();
                assert!(!passed.contains("canary"), "{variable}: {passed}");
            }
        }
    }

    /// Every agent gets the variables with these prefixes. Without this test, the key of a new provider could reach the
    /// sandbox.
    #[test]
    fn every_variable_prefix_of_a_runtime_has_a_key_that_is_removed() {
        let agent = Agent::new("coder".parse().unwrap());
        let removed = [KEYS.to_vec(), description::key_variables(&agent)].concat();
        for runtime in Runtime::ALL {
            for prefix in description::description(runtime).variable_prefixes {
                let has_key = removed.iter().any(|key| key.starts_with(prefix));
                assert!(has_key, "{prefix} of {}: add the variables with its keys to `KEYS`", runtime.name());
            }
        }
    }

    #[test]
    fn errors_name_what_is_missing() {
        for (settings, variables, word) in [
            (r#"{"runtime": "claude"}"#, vec![], "needs ANTHROPIC_API_KEY or"),
            (
                r#"{"runtime": "codex"}"#,
                vec![("OPENAI_API_KEY", "")],
                "needs OPENAI_API_KEY or CODEX_API_KEY",
            ),
            (r#"{"runtime": "command"}"#, vec![], "is not supported for `runtime: command`"),
            (r#"{"runtime": "acp", "command": ["opencode"]}"#, vec![], "is not supported for `runtime: acp`"),
            (
                r#"{"runtime": "opencode", "model": "groq/m"}"#,
                vec![("OPENAI_API_KEY", "k")],
                "needs OPENAI_BASE_URL; set it to the address of the provider of groq/m, in the environment of the \
                 daemon, in .env or in `env`",
            ),
        ] {
            let why = withheld_from(settings, &variables).unwrap_err().to_string();
            assert!(why.contains(word), "{settings}: {why}");
        }
    }
}

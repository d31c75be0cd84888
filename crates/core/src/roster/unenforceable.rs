//! Restrictions in the config that the runtime of an agent cannot enforce, and secrets that it would expose. Such an
//! agent is never started.

use super::Agent;
use crate::permission::PermissionMode;
use crate::runtime::Runtime;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unenforceable {
    /// Path of the key in the agent's config, for example `mcp_servers.NAME.url`.
    pub key: String,
    pub why: String,
}

impl Agent {
    /// Returns every restriction that the runtime cannot enforce and every secret that it would expose, one for each key.
    pub fn unenforceable(&self) -> Vec<Unenforceable> {
        let runtime = self.runtime();
        let name = runtime.name();
        let mut found = Vec::new();
        for server in self.servers_with_secret_url().filter(|_| runtime == Runtime::Codex) {
            let key = format!("mcp_servers.{server}.url");
            let why = format!(
                "`{key}` contains a user name, a query or a fragment, which may be secret, and Codex accepts it only as an argument, which every user of the machine can see; put secrets into `headers`"
            );
            found.push(Unenforceable { key, why });
        }
        if self.tools.mode == PermissionMode::Ask && !runtime.asks() {
            let why = format!(
                "`permission_mode: ask` needs a runtime that asks before it uses a tool, and `runtime: {name}` does not, so the agent is not started"
            );
            found.push(Unenforceable { key: "permission_mode".to_owned(), why });
        }
        for key in self.unsupported_restrictions() {
            let why = format!(
                "`runtime: {name}` cannot enforce `{key}`, so the agent is not started; remove the key, or choose another runtime"
            );
            found.push(Unenforceable { key: key.to_owned(), why });
        }
        found
    }

    /// Returns the keys with a restriction that the runtime cannot enforce. `permission_mode: ask` is not among them.
    fn unsupported_restrictions(&self) -> impl Iterator<Item = &'static str> {
        let runtime = self.runtime();
        let forbids = |mode| {
            use PermissionMode::{AcceptEdits, Ask, BypassPermissions, Default, Delegate, DontAsk, Plan};
            match mode {
                AcceptEdits | BypassPermissions | Ask => false,
                Default | Plan | Delegate | DontAsk => true,
            }
        };
        let can_restrict = match runtime {
            Runtime::Claude | Runtime::Gemini | Runtime::Opencode | Runtime::Acp => true,
            Runtime::Codex | Runtime::Command => false,
        };
        let keys = [
            ("denied_tools", !self.tools.denied.is_empty()),
            ("tools", self.tools.available.is_some()),
            ("permission_mode", runtime == Runtime::Command && forbids(self.tools.mode)),
        ];
        keys.into_iter().filter(move |(_, is_set)| *is_set && !can_restrict).map(|(key, _)| key)
    }

    /// Returns the names of the MCP servers whose URLs may contain a secret.
    fn servers_with_secret_url(&self) -> impl Iterator<Item = &str> {
        let holds_more = |url: &str| {
            let place = url.split_once("://").map_or(url, |(_, place)| place);
            let host = place.split(['/', '?', '#']).next().unwrap_or_default();
            host.contains('@') || place.contains('?') || place.contains('#')
        };
        let servers = self.mcp_servers.iter();
        servers
            .filter(move |(_, server)| server.url.as_deref().is_some_and(holds_more))
            .map(|(name, _)| name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_a_runtime_cannot_enforce_are_found() {
        let cases: &[(&str, &[&str])] = &[
            (r#"{"runtime":"codex"}"#, &[]),
            (r#"{"runtime":"codex","permission_mode":"plan","allowed_tools":["Bash"]}"#, &[]),
            (r#"{"runtime":"codex","denied_tools":["Bash"]}"#, &["denied_tools"]),
            (r#"{"runtime":"codex","denied_tools":[]}"#, &[]),
            (r#"{"runtime":"codex","tools":["Read"]}"#, &["tools"]),
            (r#"{"runtime":"codex","tools":[]}"#, &[]),
            (r#"{"runtime":"codex","mcp_servers":{"far":{"url":"https://h/mcp@2"}}}"#, &[]),
            (
                r#"{"runtime":"codex","mcp_servers":{"far":{"url":"https://h/mcp?key=s"}}}"#,
                &["mcp_servers.far.url"],
            ),
            (
                r#"{"runtime":"codex","mcp_servers":{"far":{"url":"https://u:s@h/mcp"}}}"#,
                &["mcp_servers.far.url"],
            ),
            (r#"{"runtime":"claude","mcp_servers":{"far":{"url":"https://u:s@h/mcp"}}}"#, &[]),
            (r#"{"runtime":"command","permission_mode":"acceptEdits"}"#, &[]),
            (r#"{"runtime":"command","permission_mode":"plan"}"#, &["permission_mode"]),
            (
                r#"{"runtime":"claude","tools":["Read"],"denied_tools":["Bash"],"permission_mode":"plan"}"#,
                &[],
            ),
            (r#"{"runtime":"gemini","denied_tools":["Bash"]}"#, &[]),
            (
                r#"{"runtime":"command","permission_mode":"plan","tools":["Bash"],"denied_tools":["Read"]}"#,
                &["denied_tools", "tools", "permission_mode"],
            ),
            (
                r#"{"runtime":"command","permission_mode":"ask","tools":["Bash"]}"#,
                &["permission_mode", "tools"],
            ),
            (r#"{"runtime":"claude","permission_mode":"ask"}"#, &[]),
            (r#"{"runtime":"codex","permission_mode":"ask"}"#, &["permission_mode"]),
            (r#"{"runtime":"gemini","permission_mode":"ask"}"#, &["permission_mode"]),
            (r#"{"runtime":"opencode","permission_mode":"ask"}"#, &["permission_mode"]),
            (r#"{"runtime":"command","permission_mode":"ask"}"#, &["permission_mode"]),
        ];
        for (settings, keys) in cases {
            let agent = Agent::from_config("coder".parse().unwrap(), serde_json::from_str(settings).unwrap());
            let found = agent.unenforceable();
            let found_keys: Vec<&str> = found.iter().map(|found| found.key.as_str()).collect();
            assert_eq!(found_keys, *keys, "{settings} {found:?}");
        }
    }
}

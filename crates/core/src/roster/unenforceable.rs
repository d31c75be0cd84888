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
    pub fn unenforceable(&self) -> Option<Unenforceable> {
        let runtime = self.runtime();
        let name = runtime.name();
        if let Some(server) = self.server_with_secret_url().filter(|_| runtime == Runtime::Codex) {
            let key = format!("mcp_servers.{server}.url");
            let why = format!(
                "`{key}` contains a user name, a query or a fragment, which may be secret, and Codex accepts it only as an argument, which every user of the machine can see; put secrets into `headers`"
            );
            return Some(Unenforceable { key, why });
        }
        if self.tools.mode == PermissionMode::Ask && !runtime.asks() {
            let why = format!(
                "`permission_mode: ask` needs a runtime that asks before it uses a tool, and `runtime: {name}` does not, so the agent is not started"
            );
            return Some(Unenforceable { key: "permission_mode".to_owned(), why });
        }
        let key = self.unsupported_restriction()?;
        let why = format!(
            "`runtime: {name}` cannot enforce `{key}`, so the agent is not started; remove the key, or choose another runtime"
        );
        Some(Unenforceable { key: key.to_owned(), why })
    }

    /// Returns the first key with a restriction that the runtime cannot enforce.
    fn unsupported_restriction(&self) -> Option<&'static str> {
        let runtime = self.runtime();
        let forbids = |mode| {
            use PermissionMode::{AcceptEdits, Ask, BypassPermissions, Default, Delegate, DontAsk, Plan};
            match mode {
                AcceptEdits | BypassPermissions => false,
                Default | Plan | Delegate | DontAsk | Ask => true,
            }
        };
        let can_restrict = match runtime {
            Runtime::Claude | Runtime::Gemini | Runtime::Opencode | Runtime::Acp => true,
            Runtime::Codex | Runtime::Command => false,
        };
        if can_restrict {
            None
        } else if !self.tools.denied.is_empty() {
            Some("denied_tools")
        } else if self.tools.available.is_some() {
            Some("tools")
        } else if runtime == Runtime::Command && forbids(self.tools.mode) {
            Some("permission_mode")
        } else {
            None
        }
    }

    /// Returns the name of the first MCP server whose URL may contain a secret.
    fn server_with_secret_url(&self) -> Option<&str> {
        let holds_more = |url: &str| {
            let place = url.split_once("://").map_or(url, |(_, place)| place);
            let host = place.split(['/', '?', '#']).next().unwrap_or_default();
            host.contains('@') || place.contains('?') || place.contains('#')
        };
        let mut servers = self.mcp_servers.iter();
        servers
            .find(|(_, server)| server.url.as_deref().is_some_and(holds_more))
            .map(|(name, _)| name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_a_runtime_cannot_enforce_are_found() {
        for (settings, key) in [
            (r#"{"runtime":"codex"}"#, None),
            (r#"{"runtime":"codex","permission_mode":"plan","allowed_tools":["Bash"]}"#, None),
            (r#"{"runtime":"codex","denied_tools":["Bash"]}"#, Some("denied_tools")),
            (r#"{"runtime":"codex","denied_tools":[]}"#, None),
            (r#"{"runtime":"codex","tools":["Read"]}"#, Some("tools")),
            (r#"{"runtime":"codex","tools":[]}"#, None),
            (r#"{"runtime":"codex","mcp_servers":{"far":{"url":"https://h/mcp@2"}}}"#, None),
            (
                r#"{"runtime":"codex","mcp_servers":{"far":{"url":"https://h/mcp?key=s"}}}"#,
                Some("mcp_servers.far.url"),
            ),
            (
                r#"{"runtime":"codex","mcp_servers":{"far":{"url":"https://u:s@h/mcp"}}}"#,
                Some("mcp_servers.far.url"),
            ),
            (r#"{"runtime":"claude","mcp_servers":{"far":{"url":"https://u:s@h/mcp"}}}"#, None),
            (r#"{"runtime":"command","permission_mode":"acceptEdits"}"#, None),
            (r#"{"runtime":"command","permission_mode":"plan"}"#, Some("permission_mode")),
            (
                r#"{"runtime":"claude","tools":["Read"],"denied_tools":["Bash"],"permission_mode":"plan"}"#,
                None,
            ),
            (r#"{"runtime":"gemini","denied_tools":["Bash"]}"#, None),
            (r#"{"runtime":"claude","permission_mode":"ask"}"#, None),
            (r#"{"runtime":"codex","permission_mode":"ask"}"#, Some("permission_mode")),
            (r#"{"runtime":"gemini","permission_mode":"ask"}"#, Some("permission_mode")),
            (r#"{"runtime":"opencode","permission_mode":"ask"}"#, Some("permission_mode")),
            (r#"{"runtime":"command","permission_mode":"ask"}"#, Some("permission_mode")),
        ] {
            let agent = Agent::from_config("coder".parse().unwrap(), serde_json::from_str(settings).unwrap());
            let found = agent.unenforceable();
            assert_eq!(found.as_ref().map(|found| found.key.as_str()), key, "{settings} {found:?}");
        }
    }
}

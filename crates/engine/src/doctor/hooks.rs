//! Checks that the variables and addresses of hooks can be used, before a hook fails after a job.

use cowhand_core::hook::{Hook, HookAction};
use cowhand_core::public_address::private_host_as_written;
use cowhand_core::roster::{Agent, Roster};

use super::Finding;
use cowhand_work::WorkSources;

/// Returns only problems, because a fleet may have many hooks.
pub(super) fn check(sources: &WorkSources, roster: &Roster) -> Vec<Finding> {
    let is_set = |name: &str| sources.context().variable(name).is_some();
    let findings_of = |agent: &Agent| {
        let lists = [("after_run", &agent.hooks.after_run), ("on_error", &agent.hooks.on_error)];
        let hooks = lists.into_iter().flat_map(|(list, hooks)| {
            hooks.iter().enumerate().map(move |(number, hook)| (list, number, hook))
        });
        hooks
            .filter_map(|(list, number, hook)| {
                let what = match &hook.name {
                    Some(name) => format!("hook {name} of {}", agent.name),
                    None => format!("hook {list}[{number}] of {}", agent.name),
                };
                Some(Finding::of(what, Err(obstacle(hook, is_set)?)))
            })
            .collect::<Vec<_>>()
    };
    roster.agents.iter().flat_map(findings_of).collect()
}

/// Explains why a hook would always fail; `None` if no reason is known.
fn obstacle(hook: &Hook, is_set: impl Fn(&str) -> bool) -> Option<String> {
    let (variable, url) = match &hook.action {
        HookAction::Shell { .. } => return None,
        HookAction::Webhook { url, secret, secret_env, allow_private, .. } => {
            (secret_env.as_deref().filter(|_| secret.is_none()), Some(url).filter(|_| !allow_private))
        }
        HookAction::Discord { bot_token_env, .. } | HookAction::Slack { bot_token_env, .. } => {
            (Some(bot_token_env.as_str()), None)
        }
    };
    if let Some(name) = variable.filter(|name| !is_set(name)) {
        return Some(format!(
            "{name} is not set, so it fails after each job; set it in the environment or in .env"
        ));
    }
    let host = private_host_as_written(url?)?;
    Some(format!("{host} is not a public address; `allow_private: true` lets this hook reach it"))
}

#[cfg(test)]
mod tests {
    use cowhand_core::shape::HookConfig;

    use super::*;

    #[test]
    fn hooks_without_a_variable_or_a_public_address_are_found() {
        for (hook, expected) in [
            (r#"{"type":"shell","command":"x"}"#, None),
            (r#"{"type":"webhook","url":"https://example.com/x"}"#, None),
            (r#"{"type":"webhook","url":"https://example.com/x","secret_env":"SET"}"#, None),
            (
                r#"{"type":"webhook","url":"https://example.com/x","secret_env":"UNSET"}"#,
                Some("UNSET is not set"),
            ),
            (r#"{"type":"webhook","url":"https://example.com/x","secret":"s","secret_env":"UNSET"}"#, None),
            (r#"{"type":"webhook","url":"http://10.0.0.7:9/x"}"#, Some("10.0.0.7 is not a public address")),
            (r#"{"type":"webhook","url":"http://localhost/x"}"#, Some("`allow_private: true` lets")),
            (r#"{"type":"webhook","url":"http://[::1]/x"}"#, Some("[::1] is not a public address")),
            (r#"{"type":"webhook","url":"http://localhost/x","allow_private":true}"#, None),
            (r#"{"type":"discord","channel_id":"1","bot_token_env":"UNSET"}"#, Some("UNSET is not set")),
            (r#"{"type":"discord","channel_id":"1","bot_token_env":"SET"}"#, None),
            (r#"{"type":"slack","channel_id":"1"}"#, Some("SLACK_BOT_TOKEN is not set")),
            (r#"{"type":"slack","channel_id":"1","bot_token_env":"SET"}"#, None),
        ] {
            let hook = Hook::from(serde_json::from_str::<HookConfig>(hook).unwrap());
            let found = obstacle(&hook, |name| name == "SET");
            match expected {
                None => assert_eq!(found, None, "{hook:?}"),
                Some(text) => assert!(found.as_ref().is_some_and(|found| found.contains(text)), "{found:?}"),
            }
        }
    }
}

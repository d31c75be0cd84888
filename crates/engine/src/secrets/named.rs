//! The variables that the config names as secrets, in keys that end in `_env`. The name of the variable itself does not
//! matter.

use std::collections::BTreeSet;

use cowhand_core::config::ShownConfig;
use cowhand_core::roster::Roster;
use cowhand_core::trigger::TriggerConfig;
use serde_json::Value;

/// Ending of the keys that name variables with secrets.
const ENDING: &str = "_env";

/// Returns the names of these variables for a whole fleet, from its agents, from its schedules, and from keys that only
/// the shown config has.
pub fn variables(roster: &Roster, shown: Option<&ShownConfig>) -> Vec<String> {
    let mut names: BTreeSet<String> = roster.chat_variables().into_iter().map(str::to_owned).collect();
    let targets = roster.notifications.targets.values();
    names.extend(targets.filter_map(|target| target.variable().map(str::to_owned)));
    for agent in &roster.agents {
        look_in_part(agent.work_source.as_ref(), &mut names);
        look_in_part(agent.trust.as_ref(), &mut names);
        if agent.hooks.all().next().is_some() {
            look_in_part(Some(&agent.hooks), &mut names);
        }
        for schedule in &agent.schedules {
            look_in_part(Some(&schedule.trigger).filter(|trigger| may_name(trigger)), &mut names);
            look_in_part(schedule.work_source.as_ref(), &mut names);
            look_in_part(schedule.trust.as_ref(), &mut names);
        }
    }
    for part in shown.into_iter().flat_map(|shown| shown.parts_with_key_ending(ENDING)) {
        look_in(&part, &mut names);
    }
    names.into_iter().collect()
}

/// Checks whether a trigger of this type can have keys for secrets.
const fn may_name(trigger: &TriggerConfig) -> bool {
    match trigger {
        TriggerConfig::Webhook { .. }
        | TriggerConfig::GithubIssues { .. }
        | TriggerConfig::GithubPullRequests { .. }
        | TriggerConfig::Custom { .. } => true,
        TriggerConfig::Interval { .. }
        | TriggerConfig::Cron { .. }
        | TriggerConfig::Delay { .. }
        | TriggerConfig::Chat { .. }
        | TriggerConfig::Manual {}
        | TriggerConfig::AgentLifecycle { .. }
        | TriggerConfig::DispatchResult { .. } => false,
    }
}

/// Looks for names in a part of the config, as it is written in a file.
fn look_in_part(part: Option<&impl serde::Serialize>, names: &mut BTreeSet<String>) {
    if let Some(part) = part {
        look_in(&serde_json::to_value(part).unwrap_or_default(), names);
    }
}

fn look_in(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (key, field) in fields {
                match field {
                    // The key of a webhook can name several variables.
                    Value::String(text) if key.ends_with(ENDING) => {
                        let own = text.split(',').map(str::trim).filter(|name| !name.is_empty());
                        names.extend(own.map(str::to_owned));
                    }
                    other => look_in(other, names),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| look_in(item, names)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use cowhand_core::roster::Agent;
    use serde_json::json;

    use super::*;

    /// The test takes all keys from the schema, so that it covers new keys.
    #[test]
    fn every_schema_key_for_a_secret_variable_is_found() {
        fn keys(schema: &Value, found: &mut BTreeSet<String>) {
            match schema {
                Value::Object(fields) => {
                    let own = fields.get("properties").and_then(Value::as_object);
                    found.extend(
                        own.into_iter().flat_map(|own| own.keys()).filter(|key| is_named(key)).cloned(),
                    );
                    fields.values().for_each(|field| keys(field, found));
                }
                Value::Array(items) => items.iter().for_each(|item| keys(item, found)),
                _ => {}
            }
        }
        fn is_named(key: &str) -> bool {
            let words = ["token", "secret", "key", "password"];
            key.contains("env") && words.iter().any(|word| key.contains(word))
        }
        let mut found = BTreeSet::new();
        keys(&cowhand_core::config::editor::fleet_schema(), &mut found);
        assert!(found.len() >= 5, "{found:?}");
        for key in found {
            let mut names = BTreeSet::new();
            look_in(&json!({"a": [{ key.as_str(): "X, Y" }]}), &mut names);
            assert_eq!(names.len(), 2, "{key} does not end in `_env`, so nobody looks for what it names");
        }
    }

    #[test]
    fn variables_with_secrets_are_found_in_a_fleet() {
        let config = serde_json::from_value(json!({
            "work_source": {"type": "github", "repo": "o/r", "auth": {"token_env": "ONE", "app": {"id": "1", "private_key_env": "TWO"}}},
            "chat": {
                "discord": {"bot_token_env": "THREE", "guilds": []},
                "slack": {"app_token_env": "NINE", "channels": [], "voice": {"enabled": true}},
            },
            "hooks": {"after_run": [{"type": "webhook", "url": "http://a", "secret_env": "FOUR"}]},
        }))
        .unwrap();
        let agent = Agent::from_config("a".parse().unwrap(), config);
        let roster = Roster::of(vec![agent]);
        let fleet = json!({"webhooks": {"secret_env": "FIVE"}, "env": "SIX"});
        let agents = [json!({"a": {"key_env": "SEVEN"}}), json!({"env": "EIGHT"})];
        let shown = ShownConfig::new(fleet, agents.map(|agent| agent.to_string().into()).to_vec());
        assert_eq!(
            variables(&roster, Some(&shown)),
            ["FIVE", "FOUR", "NINE", "ONE", "OPENAI_API_KEY", "SEVEN", "SLACK_BOT_TOKEN", "THREE", "TWO"]
        );
    }
}

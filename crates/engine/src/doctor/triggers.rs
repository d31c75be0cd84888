//! Checks that the triggers of enabled schedules can start: their type is registered, and their credentials are set.

use cowhand_core::roster::{Agent, Roster, Schedule};
use cowhand_core::trigger::TriggerConfig;

use super::Finding;
use super::agents::{find, unusable};
use crate::trigger::{GithubAccess, Registry};
use cowhand_work::{SourceContext, WorkSources};

/// Returns only problems. Each of them stops the schedule with an error.
pub(super) fn check(registry: &Registry, sources: &WorkSources, roster: &Roster) -> Vec<Finding> {
    let schedules =
        roster.agents.iter().flat_map(|agent| agent.schedules.iter().map(move |schedule| (agent, schedule)));
    schedules
        .filter(|(_, schedule)| schedule.enabled)
        .filter_map(|(agent, schedule)| {
            let error =
                obstacle(registry, sources.context(), schedule).or_else(|| missing_check(agent, schedule))?;
            let what = format!("schedule {}/{}", agent.name, schedule.name);
            Some(Finding::of(what, Err(format!("it cannot fire: {error}"))))
        })
        .collect()
}

fn obstacle(registry: &Registry, context: &SourceContext, schedule: &Schedule) -> Option<String> {
    match &schedule.trigger {
        TriggerConfig::Custom { name, .. } => registry.unknown(name),
        trigger => Some(GithubAccess::of(trigger)?.check(context).err()?.to_string()),
    }
}

/// Returns the reason why the `when_command` of the schedule cannot be started.
fn missing_check(agent: &Agent, schedule: &Schedule) -> Option<String> {
    let program = schedule.when_command.as_ref()?.first()?;
    let is_missing = find(program, &agent.directory, None).is_none();
    is_missing.then(|| format!("its `when_command`: {}", unusable(program, &agent.directory)))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::path::Path;
    use std::sync::Arc;

    use super::*;

    #[test]
    fn triggers_that_cannot_start_are_reported() {
        let variables = HashMap::from([("DOCTOR_SET".to_owned(), "ghp_1".to_owned())]);
        let sources = WorkSources::new(Arc::default(), SourceContext::of_base(Path::new("/"), variables));
        let registry = Registry::default().with("known", |_| anyhow::bail!("not made here"));
        let pulls =
            |keys: &str| format!(r#"{{"type":"github_pull_requests","owner":"o","repo":"r",{keys}}}"#);
        let issues = |variable: &str| {
            format!(
                r#"{{"type":"github_issues","owner":"o","repo":"r","auth":{{"token_env":"{variable}"}}}}"#
            )
        };
        for (trigger, enabled, expected) in [
            (r#"{"type":"manual"}"#.to_owned(), true, None),
            (r#"{"type":"custom","name":"known"}"#.to_owned(), true, None),
            (r#"{"type":"custom","name":"nix"}"#.to_owned(), true, Some("registered: known")),
            (r#"{"type":"custom","name":"nix"}"#.to_owned(), false, None),
            (issues("DOCTOR_SET"), true, None),
            (issues("DOCTOR_UNSET"), true, Some("DOCTOR_UNSET is not set")),
            (pulls(r#""auth":{"token_env":"DOCTOR_UNSET"}"#), true, Some("DOCTOR_UNSET is not set")),
            (pulls(r#""auth":{"token_env":"DOCTOR_UNSET"},"backend":"gh""#), true, None),
        ] {
            let mut agent = Agent::new("a".parse().unwrap());
            let parsed = serde_json::from_str(&trigger).unwrap();
            let schedule = Schedule::new(&agent.name, "s".parse().unwrap(), parsed);
            agent.schedules.push(Schedule { enabled, ..schedule });
            let findings = check(&registry, &sources, &Roster::of(vec![agent]));
            assert_eq!(findings.len(), usize::from(expected.is_some()), "{trigger}: {findings:?}");
            for finding in &findings {
                let is_named = finding.what == "schedule a/s" && !finding.ok;
                assert!(is_named && finding.detail.contains(expected.unwrap()), "{trigger}: {finding:?}");
            }
        }
    }

    #[test]
    fn a_missing_program_of_when_command_is_reported() {
        let sources =
            WorkSources::new(Arc::default(), SourceContext::of_base(Path::new("/"), HashMap::new()));
        for (program, expected) in
            [("true", None), ("/nonexist/check", Some("/nonexist/check does not exist"))]
        {
            let mut agent = Agent::new("a".parse().unwrap());
            let manual = serde_json::from_str(r#"{"type":"manual"}"#).unwrap();
            let mut schedule = Schedule::new(&agent.name, "s".parse().unwrap(), manual);
            schedule.when_command = Some(vec![program.to_owned()]);
            agent.schedules.push(schedule);
            let findings = check(&Registry::default(), &sources, &Roster::of(vec![agent]));
            assert_eq!(findings.len(), usize::from(expected.is_some()), "{findings:?}");
            for (finding, expected) in findings.iter().zip(expected) {
                assert!(finding.detail.contains(expected), "{finding:?}");
            }
        }
    }
}
